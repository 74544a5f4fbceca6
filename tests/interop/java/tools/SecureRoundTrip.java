import java.io.StringReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * `SecureRoundTrip TOPIC RECORDS PAUSE_MS PROPERTIES...`: for each text of properties, writes records to the topic with
 * a pause between them, and reads them again. It prints a line for each: `ok`, or the class and text of the error.
 */
public final class SecureRoundTrip {
    private static final String BLOCK_MS = "5000";

    public static void main(String[] arguments) throws Exception {
        // Tokens are read from files.
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", arguments[3]);
        for (int i = 4; i < arguments.length; i++) {
            Properties properties = new Properties();
            properties.load(new StringReader(arguments[i]));
            try {
                roundTrip(properties, arguments[0], Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]));
                System.out.println("ok");
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                while (cause.getCause() != null && cause.getClass().getSimpleName().equals("KafkaException")) {
                    cause = cause.getCause();
                }
                System.out.println(cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
        }
    }

    private static void roundTrip(Properties properties, String topic, int count, int pauseMs) throws Exception {
        properties.put("max.block.ms", BLOCK_MS);
        properties.put("delivery.timeout.ms", BLOCK_MS);
        properties.put("request.timeout.ms", "3000");
        properties.put("linger.ms", "0");
        long first = -1;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                long offset = producer.send(new ProducerRecord<>(topic, 0, "key", "value" + i)).get().offset();
                first = i == 0 ? offset : first;
                Thread.sleep(pauseMs);
            }
        }
        properties.remove("delivery.timeout.ms");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, first);
            int read = 0;
            long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
            while (read < count && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (!record.value().equals("value" + read)) {
                        throw new AssertionError("value" + read + " is " + record.value());
                    }
                    read++;
                }
            }
            if (read != count) {
                throw new AssertionError("read " + read + " of " + count);
            }
        }
    }
}
