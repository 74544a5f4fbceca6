import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * `WordCount HOST:PORT STATE_DIRECTORY GUARANTEE` counts the words of the topic `GUARANTEE-lines` into the topic
 * `GUARANTEE-counts`, with this processing guarantee, in two lives of one application. The store is in memory, so the second life has the counts of the first from the changelog topic;
 * the words meet at one counter through the repartition topic. It prints the counts.
 */
public final class WordCount {
    private static final int LINES = 300;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("state.dir", arguments[1]);
        String guarantee = arguments[2];
        properties.put("application.id", "word-count-" + guarantee);
        properties.put("processing.guarantee", guarantee);
        properties.put("num.stream.threads", "2");
        properties.put("commit.interval.ms", "100");
        // An application that is closed does not leave its group: the next one waits for this.
        properties.put("session.timeout.ms", "1500");
        properties.put("heartbeat.interval.ms", "100");
        Map<String, String> counts = new TreeMap<>();
        Properties reading = new Properties();
        reading.put("bootstrap.servers", arguments[0]);
        reading.put("group.id", "word-count-reader-" + guarantee);
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(guarantee + "-counts"));
            for (int life = 1; life <= 2; life++) {
                try (KafkaStreams streams = new KafkaStreams(topology(guarantee).build(), properties)) {
                    streams.start();
                    send(arguments[0], guarantee + "-lines");
                    String all = Integer.toString(life * LINES);
                    String half = Integer.toString(life * LINES / 2);
                    await(consumer, counts, Map.of("every", all, "even", half, "odd", half));
                }
            }
        }
        System.out.println(counts);
    }

    private static StreamsBuilder topology(String prefix) {
        StreamsBuilder builder = new StreamsBuilder();
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counter =
                Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counter"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long());
        builder.stream(prefix + "-lines", Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(counter)
                .toStream()
                .mapValues(String::valueOf)
                .to(prefix + "-counts", Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    private static void send(String servers, String topic) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < LINES; i++) {
                String line = "every " + (i % 2 == 0 ? "even" : "odd");
                producer.send(new ProducerRecord<>(topic, Integer.toString(i), line));
            }
        }
    }

    private static void await(
            KafkaConsumer<String, String> consumer, Map<String, String> counts, Map<String, String> expected) {
        long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!expected.equals(counts) && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                counts.put(record.key(), record.value());
            }
        }
    }
}
