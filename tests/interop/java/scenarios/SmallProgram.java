import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * `SmallProgram HOST:PORT TOPIC`: creates the topic, produces records, commits one transaction and aborts another, reads
 * the committed records as a group and commits its offset. It calls only what every client since 2.8 has.
 */
public final class SmallProgram {
    private static final int COUNT = 10;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        List<String> expected = new ArrayList<>();
        try (Admin admin = Admin.create(properties(servers, topic))) {
            admin.createTopics(Collections.singleton(new NewTopic(topic, 1, (short) 1))).all().get();
            produce(servers, topic, expected);
            produceInTransactions(servers, topic, expected);
            List<String> read = readAsGroup(servers, topic, expected.size());
            TopicPartition partition = new TopicPartition(topic, 0);
            long committed =
                    admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(partition).offset();
            if (!read.equals(expected) || committed < expected.size()) {
                throw new AssertionError("expected " + expected + ", read " + read + ", committed " + committed);
            }
        }
        System.out.println("read " + expected.size());
    }

    private static void produce(String servers, String topic, List<String> expected) {
        try (KafkaProducer<String, String> producer = producer(properties(servers, topic))) {
            for (int i = 0; i < COUNT; i++) {
                expected.add("plain" + i);
                producer.send(new ProducerRecord<>(topic, "key", "plain" + i));
            }
        }
    }

    private static void produceInTransactions(String servers, String topic, List<String> expected) {
        Properties properties = properties(servers, topic, "transactional.id", topic);
        try (KafkaProducer<String, String> producer = producer(properties)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "key", "aborted"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            for (int i = 0; i < COUNT; i++) {
                expected.add("transactional" + i);
                producer.send(new ProducerRecord<>(topic, "key", "transactional" + i));
            }
            producer.commitTransaction();
        }
    }

    private static List<String> readAsGroup(String servers, String topic, int count) {
        Properties properties = properties(servers, topic, "group.id", topic, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "isolation.level", "read_committed");
        List<String> read = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singleton(topic));
            long end = System.nanoTime() + Duration.ofSeconds(15).toNanos();
            while (read.size() < count && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                    read.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return read;
    }

    private static KafkaProducer<String, String> producer(Properties properties) {
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** The topic's name is the client id too: metrics of clients in one JVM need different names. */
    private static Properties properties(String servers, String topic, String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("client.id", topic);
        for (int i = 0; i < settings.length; i += 2) {
            properties.put(settings[i], settings[i + 1]);
        }
        return properties;
    }
}
