import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** Transactions, in the second version of their protocol (KIP-890), which this client speaks where the broker does. */
final class Transactions {
    static void whatIsCommittedIsSeenAndWhatIsAbortedIsNot(Kit kit) throws Exception {
        String topic = kit.topic("seen", 2);
        Producer<String, String> producer = transactional(kit);
        List<String> committed = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            producer.beginTransaction();
            for (int partition = 0; partition < 2; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, "key", i + " of " + partition));
            }
            if (i % 3 == 1) {
                producer.flush();
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
                committed.add(i + " of 0");
                committed.add(i + " of 1");
            }
        }
        List<String> seen = new ArrayList<>(Kit.values(Kit.read(reader(kit, topic, 2, "read_committed"), 14)));
        Kit.read(reader(kit, topic, 2, "read_uncommitted"), 20);
        seen.sort(null);
        Kit.same(committed, seen, "what is committed");
    }

    /** Each end gives the producer another epoch, by which the second version of the protocol is known. */
    static void everyEndRaisesTheEpoch(Kit kit) throws Exception {
        String topic = kit.topic("epochs", 1);
        Producer<String, String> producer = transactional(kit);
        for (int i = 0; i < 4; i++) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "value")).get();
            int before = describe(kit).producerEpoch();
            if (i % 2 == 0) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            Kit.same(before + 1, describe(kit).producerEpoch(), "epoch");
        }
    }

    static void anOpenTransactionHoldsBackThoseWhoReadWhatIsCommitted(Kit kit) throws Exception {
        String topic = kit.topic("open", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Producer<String, String> producer = transactional(kit);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "inside")).get();
        kit.producer().send(new ProducerRecord<>(topic, "after")).get();
        Consumer<String, String> committed = reader(kit, topic, 1, "read_committed");
        Kit.same(List.of("inside", "after"), Kit.values(Kit.read(reader(kit, topic, 1, "read_uncommitted"), 2)), "all");
        Kit.same(0L, end(kit, partition, IsolationLevel.READ_COMMITTED), "the last stable offset");
        Kit.same(2L, end(kit, partition, IsolationLevel.READ_UNCOMMITTED), "the end");
        Kit.check(committed.poll(Duration.ofMillis(200)).isEmpty(), "it is held back");
        producer.commitTransaction();
        Kit.same(List.of("inside", "after"), Kit.values(Kit.read(committed, 2)), "what is committed");
        Kit.same(3L, end(kit, partition, IsolationLevel.READ_COMMITTED), "the last stable offset");
    }

    static void aZombieIsFenced(Kit kit) throws Exception {
        String topic = kit.topic("zombies", 1);
        List<Producer<String, String>> zombies = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Producer<String, String> zombie = transactional(kit);
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, "of a zombie")).get();
            zombies.add(zombie);
        }
        Producer<String, String> producer = transactional(kit);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "good")).get();
        Kit.fails(ProducerFencedException.class, () -> {
            zombies.get(0).commitTransaction();
            return null;
        });
        Kit.fails(KafkaException.class, () -> {
            zombies.get(1).abortTransaction();
            return null;
        });
        Kit.fails(KafkaException.class, () -> zombies.get(2).send(new ProducerRecord<>(topic, "late")).get());
        producer.commitTransaction();
        Kit.same(List.of("good"), Kit.values(Kit.read(reader(kit, topic, 1, "read_committed"), 1)), "what is committed");
    }

    static void aTransactionThatTakesTooLongIsAborted(Kit kit) throws Exception {
        String topic = kit.topic("slow", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Producer<String, String> slow = transactional(kit, "transaction.timeout.ms", "500", "delivery.timeout.ms", "500",
                "request.timeout.ms", "400", "linger.ms", "0");
        slow.beginTransaction();
        slow.send(new ProducerRecord<>(topic, "too slow")).get();
        Kit.until("it is aborted", () -> end(kit, partition, IsolationLevel.READ_COMMITTED) == 2L);
        Kit.fails(KafkaException.class, () -> {
            slow.commitTransaction();
            return null;
        });
        Kit.same(TransactionState.COMPLETE_ABORT, describe(kit).state(), "state");
    }

    static void whatIsReadChangedAndWrittenIsThereOnce(Kit kit) throws Exception {
        String source = kit.topic("source", 2);
        String target = kit.topic("target", 2);
        Producer<String, String> plain = kit.producer();
        for (int i = 0; i < 200; i++) {
            plain.send(new ProducerRecord<>(source, i % 2, "key", Integer.toString(i)));
        }
        plain.flush();
        Producer<String, String> producer = transactional(kit);
        int copied = 0;
        for (int attempt = 0; copied < 200; attempt++) {
            Consumer<String, String> consumer = kit.consumer(
                    "group.id", kit.name, "isolation.level", "read_committed", "max.poll.records", "30");
            consumer.subscribe(List.of(source));
            boolean isAborted = false;
            while (copied < 200 && !isAborted) {
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(Kit.SHORT).forEach(records::add);
                if (records.isEmpty()) {
                    continue;
                }
                isAborted = attempt < 3 && copied > attempt * 50;
                copy(producer, consumer, records, target, isAborted);
                copied += isAborted ? 0 : records.size();
            }
            consumer.close();
        }
        List<ConsumerRecord<String, String>> found = Kit.read(reader(kit, target, 2, "read_committed"), 200);
        for (int partition = 0; partition < 2; partition++) {
            List<String> expected = new ArrayList<>();
            for (int i = partition; i < 200; i += 2) {
                expected.add("copy of " + i);
            }
            int number = partition;
            Kit.same(expected, found.stream().filter(one -> one.partition() == number).map(ConsumerRecord::value).toList(),
                    "the copies of partition " + partition);
        }
    }

    static void oneWhoIsNoLongerAMemberCommitsNoOffsets(Kit kit) throws Exception {
        String source = kit.topic("source", 1);
        TopicPartition partition = new TopicPartition(source, 0);
        kit.producer().send(new ProducerRecord<>(source, "value")).get();
        Consumer<String, String> consumer = kit.consumer("group.id", kit.name);
        consumer.subscribe(List.of(source));
        Kit.read(consumer, 1);
        ConsumerGroupMetadata before = consumer.groupMetadata();
        consumer.close();
        Consumer<String, String> other = kit.consumer("group.id", kit.name);
        other.subscribe(List.of(source));
        Kit.read(other, 1);
        Producer<String, String> producer = transactional(kit);
        producer.beginTransaction();
        Kit.fails(CommitFailedException.class, () -> {
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1)), before);
            return null;
        });
        producer.abortTransaction();
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1)), other.groupMetadata());
        producer.commitTransaction();
        Kit.same(1L, other.committed(Set.of(partition)).get(partition).offset(), "committed");
    }

    static void adminsSeeTransactions(Kit kit) throws Exception {
        String topic = kit.topic("admins", 2);
        TopicPartition partition = new TopicPartition(topic, 1);
        Producer<String, String> producer = transactional(kit);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 1, "key", "value")).get();
        TransactionDescription open = describe(kit);
        Kit.same(TransactionState.ONGOING, open.state(), "state");
        Kit.same(Set.of(partition), open.topicPartitions(), "partitions");
        Kit.check(open.transactionStartTimeMs().isPresent(), "it has begun");
        ProducerState state = kit.admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers().get(0);
        Kit.same(open.producerId(), state.producerId(), "producer id");
        Kit.same(0L, state.currentTransactionStartOffset().getAsLong(), "start");
        Kit.check(listed(kit).contains(TransactionState.ONGOING), "listed as open");
        producer.abortTransaction();
        Kit.same(List.of(TransactionState.COMPLETE_ABORT), listed(kit), "listed");
        Kit.fails(TransactionalIdNotFoundException.class,
                () -> kit.admin.describeTransactions(List.of("nobody")).description("nobody"));
        // An admin may fence whoever has the id.
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 1, "key", "fenced")).get();
        kit.admin.fenceProducers(List.of(kit.name)).all().get();
        Kit.fails(ProducerFencedException.class, () -> {
            producer.commitTransaction();
            return null;
        });
    }

    private static Producer<String, String> transactional(Kit kit, String... settings) {
        String[] all = new String[settings.length + 2];
        System.arraycopy(settings, 0, all, 2, settings.length);
        all[0] = "transactional.id";
        all[1] = kit.name;
        Producer<String, String> producer = kit.producer(all);
        producer.initTransactions();
        return producer;
    }

    private static Consumer<String, String> reader(Kit kit, String topic, int partitions, String isolation) {
        Consumer<String, String> consumer = kit.consumer("isolation.level", isolation);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int i = 0; i < partitions; i++) {
            assigned.add(new TopicPartition(topic, i));
        }
        consumer.assign(assigned);
        consumer.seekToBeginning(assigned);
        return consumer;
    }

    private static void copy(Producer<String, String> producer, Consumer<String, String> consumer,
            List<ConsumerRecord<String, String>> records, String target, boolean isAborted) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> one : records) {
            producer.send(new ProducerRecord<>(target, one.partition(), one.key(), "copy of " + one.value()));
            offsets.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (isAborted) {
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
        }
    }

    private static long end(Kit kit, TopicPartition partition, IsolationLevel isolation) throws Exception {
        return kit.admin.listOffsets(Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
                .partitionResult(partition).get().offset();
    }

    private static TransactionDescription describe(Kit kit) throws Exception {
        return kit.admin.describeTransactions(List.of(kit.name)).description(kit.name).get();
    }

    private static List<TransactionState> listed(Kit kit) throws Exception {
        return kit.admin.listTransactions().all().get().stream()
                .filter(one -> one.transactionalId().equals(kit.name))
                .map(TransactionListing::state)
                .toList();
    }
}
