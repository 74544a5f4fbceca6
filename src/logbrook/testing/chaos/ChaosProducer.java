import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer that writes until its standard input ends. A line of standard output for each event:
 * "sent PARTITION VALUE", "acknowledged PARTITION VALUE OFFSET" and "unknown PARTITION VALUE REASON".
 *
 * Arguments: bootstrap servers, topic, number of partitions, name of the producer, records per burst, pause in ms.
 */
public class ChaosProducer {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1], name = arguments[3];
        int partitions = Integer.parseInt(arguments[2]);
        int burst = Integer.parseInt(arguments[4]);
        int pause = Integer.parseInt(arguments[5]);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "acks", "all",
                "enable.idempotence", true,
                "request.timeout.ms", 5_000,
                "delivery.timeout.ms", 300_000,
                "reconnect.backoff.max.ms", 200,
                "key.serializer", StringSerializer.class.getName(),
                "value.serializer", ByteArraySerializer.class.getName());
        Random random = new Random(name.hashCode());
        long number = 0;
        try (KafkaProducer<String, byte[]> producer = new KafkaProducer<>(settings)) {
            while (System.in.available() == 0) {
                for (int i = random.nextInt(burst) + 1; i > 0; i--) {
                    int partition = random.nextInt(partitions);
                    String value = name + ":" + ++number;
                    say("sent " + partition + " " + value);
                    ProducerRecord<String, byte[]> record = new ProducerRecord<>(topic, partition, null, (value + "|").getBytes());
                    producer.send(record, (metadata, error) -> {
                        if (error == null && metadata.hasOffset()) {
                            say("acknowledged " + partition + " " + value + " " + metadata.offset());
                        } else {
                            say("unknown " + partition + " " + value + " " + (error == null ? "no offset" : error));
                        }
                    });
                }
                Thread.sleep(random.nextInt(2 * pause + 1));
            }
            producer.flush();
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
    }
}
