import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * `RoundTrip HOST:PORT TOPIC`: makes the topic, fills it with each codec, reads it as a group and commits. It calls
 * only what is in every client since 2.1, so that the same class runs with each.
 */
public final class RoundTrip {
    private static final int COUNT = 100;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        AdminClient admin = AdminClient.create(properties(arguments[0]));
        admin.createTopics(Collections.singleton(new NewTopic(topic, 1, (short) 1))).all().get();
        List<String> sent = new ArrayList<>();
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            Properties properties = properties(
                    arguments[0], "compression.type", codec, "enable.idempotence", "true", "acks", "all");
            KafkaProducer<String, String> producer =
                    new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
            for (int i = 0; i < COUNT; i++) {
                sent.add(codec + i);
                producer.send(new ProducerRecord<>(topic, "key", codec + i));
            }
            producer.close();
        }
        Properties properties = properties(
                arguments[0], "group.id", topic, "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(Collections.singleton(topic));
        List<String> read = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(15).toNanos();
        while (read.size() < sent.size() && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                read.add(record.value());
            }
        }
        consumer.commitSync();
        consumer.close();
        TopicPartition partition = new TopicPartition(topic, 0);
        long committed =
                admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(partition).offset();
        admin.close();
        if (!read.equals(sent) || committed != sent.size()) {
            throw new AssertionError("sent " + sent + ", read " + read + ", committed " + committed);
        }
        System.out.println("read " + read.size());
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
