import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/** Run while the connections are cut, or while the broker is restarted: the test sees to that. */
final class Interruptions {
    private static final int PARTITIONS = 3;

    /** An idempotent producer with five requests under way repeats those that were cut; none may count twice. */
    static void everyRecordIsWrittenOnceAndInOrder(Kit kit) throws Exception {
        int count = 6000;
        String topic = kit.topic("once", PARTITIONS);
        Producer<String, String> producer =
                kit.producer("batch.size", "1000", "retry.backoff.ms", "5", "reconnect.backoff.ms", "5");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "key", Integer.toString(i))));
        }
        for (int i = 0; i < count; i++) {
            Kit.same((long) i / PARTITIONS, sent.get(i).get().offset(), "the offset that the producer was told");
        }
        Consumer<String, String> consumer =
                kit.consumer("reconnect.backoff.ms", "5", "max.partition.fetch.bytes", "4000");
        for (int i = 0; i < PARTITIONS; i++) {
            TopicPartition partition = new TopicPartition(topic, i);
            consumer.assign(List.of(partition));
            List<ConsumerRecord<String, String>> records = Kit.read(consumer, count / PARTITIONS);
            for (int j = 0; j < records.size(); j++) {
                Kit.same(Integer.toString(j * PARTITIONS + i), records.get(j).value(), "the record at offset " + j);
            }
            Kit.same((long) records.size(), consumer.endOffsets(List.of(partition)).get(partition), "the end");
        }
    }

    /**
     * While nothing gets through, records are given up. The client cannot know whether they were written, so it goes
     * on with the next epoch and from sequence 0 (KIP-360).
     */
    static void aProducerGoesOnAfterItGaveRecordsUp(Kit kit) throws Exception {
        String topic = kit.topic("on", 1);
        Producer<String, String> producer = kit.producer("linger.ms", "0", "batch.size", "500",
                "request.timeout.ms", "300", "delivery.timeout.ms", "600", "retry.backoff.ms", "20");
        Set<String> written = ConcurrentHashMap.newKeySet();
        AtomicInteger failed = new AtomicInteger();
        AtomicInteger since = new AtomicInteger();
        for (int i = 0; since.get() < 100 && i < 100_000; i++) {
            String value = Integer.toString(i);
            Future<RecordMetadata> last = producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error != null) {
                    failed.incrementAndGet();
                } else {
                    written.add(value);
                    since.addAndGet(failed.get() > 0 ? 1 : 0);
                }
            });
            if (i % 5 == 0) {
                try {
                    last.get();
                } catch (ExecutionException error) {
                    Kit.check(error.getCause() instanceof TimeoutException, "it took too long: " + error);
                }
            }
        }
        producer.flush();
        Kit.check(failed.get() > 0, "some were given up");
        TopicPartition partition = new TopicPartition(topic, 0);
        ProducerState state = kit.admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers().get(0);
        Kit.check(state.producerEpoch() > 0, "the epoch is the next one: " + state);
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(partition));
        int end = Math.toIntExact(consumer.endOffsets(List.of(partition)).get(partition));
        List<Integer> values = Kit.values(Kit.read(consumer, end)).stream().map(Integer::valueOf).toList();
        Kit.same(values.stream().sorted().distinct().toList(), values, "in order, and each once");
        written.forEach(value -> Kit.check(values.contains(Integer.valueOf(value)), "it is there: " + value));
    }

    /** The producer waits for each record, so that restarts meet it at many of them. */
    static void aProducerAndItsGroupGoOn(Kit kit) throws Exception {
        int count = 300;
        String topic = kit.topic("on", 1);
        Producer<String, String> producer = kit.producer("retry.backoff.ms", "5", "reconnect.backoff.ms", "5");
        Consumer<String, String> consumer = kit.consumer("group.id", kit.name, "reconnect.backoff.ms", "5");
        consumer.subscribe(List.of(topic));
        Set<String> values = new HashSet<>();
        for (int i = 0; i < count; i++) {
            RecordMetadata sent = producer.send(new ProducerRecord<>(topic, Integer.toString(i))).get();
            Kit.same((long) i, sent.offset(), "the offset that the producer was told");
            consumer.poll(Kit.SHORT.dividedBy(20)).forEach(record -> values.add(record.value()));
            if (i % 20 == 0) {
                consumer.commitSync();
            }
        }
        Kit.until("all are read", () -> {
            consumer.poll(Kit.SHORT).forEach(record -> values.add(record.value()));
            return values.size() == count;
        });
        consumer.commitSync();
        TopicPartition partition = new TopicPartition(topic, 0);
        Kit.same((long) count, consumer.endOffsets(List.of(partition)).get(partition), "the end");
        Kit.same((long) count, consumer.committed(Set.of(partition)).get(partition).offset(), "committed");
    }
}
