import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What the scenarios share: clients of one broker, topics of their own, and ways to wait and to check. */
final class Kit implements AutoCloseable {
    static final Duration DEADLINE = Duration.ofSeconds(15);
    static final Duration SHORT = Duration.ofMillis(20);

    final String servers;
    /** Starts the names of all that a scenario makes, so that scenarios do not meet. */
    final String name;
    final Admin admin;
    private final List<AutoCloseable> clients = new ArrayList<>();

    Kit(String servers, String name) {
        this.servers = servers;
        this.name = name;
        admin = Admin.create(properties());
    }

    Properties properties(String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        for (int i = 0; i < settings.length; i += 2) {
            properties.put(settings[i], settings[i + 1]);
        }
        return properties;
    }

    /** Idempotent and acks=all, as the client's own defaults are. */
    Producer<String, String> producer(String... settings) {
        return kept(new KafkaProducer<>(properties(settings), new StringSerializer(), new StringSerializer()));
    }

    /** Reads from the beginning where nothing was committed. */
    Consumer<String, String> consumer(String... settings) {
        // A consumer that is closed waits for the fetch that it has under way.
        Properties properties = properties(
                "auto.offset.reset", "earliest", "enable.auto.commit", "false", "fetch.max.wait.ms", "50");
        properties.putAll(properties(settings));
        return kept(new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer()));
    }

    String topic(String suffix, int partitions, String... settings) throws Exception {
        NewTopic topic = new NewTopic(name + "-" + suffix, partitions, (short) 1);
        Map<String, String> configs = new HashMap<>();
        for (int i = 0; i < settings.length; i += 2) {
            configs.put(settings[i], settings[i + 1]);
        }
        admin.createTopics(List.of(topic.configs(configs))).all().get();
        return topic.name();
    }

    /** Polls until there are this many records, and fails where there are more or where the deadline passes. */
    static List<ConsumerRecord<String, String>> read(Consumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (records.size() < count && System.nanoTime() < end) {
            consumer.poll(SHORT).forEach(records::add);
        }
        same(count, records.size(), "records read");
        return records;
    }

    static void until(String what, Callable<Boolean> isSo) throws Exception {
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (!isSo.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("in time: " + what);
            }
        }
    }

    static void same(Object expected, Object actual, String what) {
        if (!expected.equals(actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError(what);
        }
    }

    /** The call must fail with this error, on its own or as the cause of a future's failure. */
    static void fails(Class<? extends Throwable> kind, Callable<?> call) throws Exception {
        try {
            Object result = call.call();
            if (result instanceof KafkaFuture) {
                ((KafkaFuture<?>) result).get();
            }
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (kind.isInstance(cause)) {
                return;
            }
            throw error;
        }
        throw new AssertionError("it went well where " + kind.getSimpleName() + " was expected");
    }

    static List<String> values(Collection<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    @Override
    public void close() throws Exception {
        for (AutoCloseable client : clients) {
            client.close();
        }
        admin.close();
    }

    private <T extends AutoCloseable> T kept(T client) {
        clients.add(client);
        return client;
    }
}
