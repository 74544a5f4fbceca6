import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * `TransactionalRoundTrip HOST:PORT TOPIC`: makes the topic, commits and aborts in turn, offsets of a group with them,
 * is fenced, and reads what is committed. It calls only what is in every client since 2.5.
 */
public final class TransactionalRoundTrip {
    private static final int COUNT = 20;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        TopicPartition partition = new TopicPartition(topic, 0);
        AdminClient admin = AdminClient.create(properties(servers));
        admin.createTopics(Collections.singleton(new NewTopic(topic, 1, (short) 1))).all().get();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                properties(servers, "group.id", topic, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                        "isolation.level", "read_committed"),
                new StringDeserializer(), new StringDeserializer());
        consumer.assign(Collections.singleton(partition));
        KafkaProducer<String, String> producer = producer(servers, topic, "first");
        List<String> committed = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "key", "value" + i)).get();
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    Collections.singletonMap(partition, new OffsetAndMetadata(i));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (i % 3 == 1) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
                committed.add("value" + i);
            }
        }
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "key", "of a zombie")).get();
        KafkaProducer<String, String> successor = producer(servers, topic, "successor");
        try {
            producer.commitTransaction();
            throw new AssertionError("the zombie was not fenced");
        } catch (ProducerFencedException expected) {
            producer.close(Duration.ZERO);
        }
        successor.beginTransaction();
        successor.send(new ProducerRecord<>(topic, "key", "last"));
        successor.commitTransaction();
        successor.close();
        committed.add("last");
        List<String> read = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(15).toNanos();
        consumer.seekToBeginning(Collections.singleton(partition));
        while (read.size() < committed.size() && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                read.add(record.value());
            }
        }
        long offset = consumer.committed(Collections.singleton(partition)).get(partition).offset();
        consumer.close();
        admin.close();
        if (!read.equals(committed) || offset != COUNT - 2) {
            throw new AssertionError("committed " + committed + ", read " + read + ", offset " + offset);
        }
        System.out.println("read " + read.size());
    }

    private static KafkaProducer<String, String> producer(String servers, String id, String clientId) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
                properties(servers, "transactional.id", id, "client.id", clientId),
                new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static Properties properties(String servers, String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        for (int i = 0; i < settings.length; i += 2) {
            properties.put(settings[i], settings[i + 1]);
        }
        return properties;
    }
}
