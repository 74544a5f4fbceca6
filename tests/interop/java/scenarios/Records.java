import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.record.TimestampType;

/** Producing and consuming without groups. */
final class Records {
    private static final int COUNT = 500;

    /** Keys, values, headers, times and order, of an idempotent producer with several batches under way. */
    static void everyCodecComesBackAsItWasSent(Kit kit) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = kit.topic(codec, 1);
            Producer<String, String> producer =
                    kit.producer("compression.type", codec, "batch.size", "2000", "linger.ms", "1");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < COUNT; i++) {
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, 0, 1_000_000L + i, i % 3 == 0 ? null : "key" + i, "value" + i);
                record.headers().add("number", Integer.toString(i).getBytes(StandardCharsets.UTF_8)).add("none", null);
                sent.add(producer.send(record));
            }
            producer.flush();
            for (int i = 0; i < COUNT; i++) {
                Kit.same((long) i, sent.get(i).get().offset(), "the offset that " + codec + " was told");
            }
            Consumer<String, String> consumer = kit.consumer();
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            List<ConsumerRecord<String, String>> records = Kit.read(consumer, COUNT);
            for (int i = 0; i < COUNT; i++) {
                ConsumerRecord<String, String> record = records.get(i);
                Kit.same((long) i, record.offset(), "offset");
                Kit.same(1_000_000L + i, record.timestamp(), "timestamp");
                Kit.same(i % 3 == 0 ? "null" : "key" + i, String.valueOf(record.key()), "key");
                Kit.same("value" + i, record.value(), "value");
                Kit.same(2, record.headers().toArray().length, "headers");
                String number = new String(record.headers().lastHeader("number").value(), StandardCharsets.UTF_8);
                Kit.same(Integer.toString(i), number, "header");
                Kit.check(record.headers().lastHeader("none").value() == null, "a header may be null");
            }
        }
    }

    static void everyLevelOfAcknowledgementArrives(Kit kit) throws Exception {
        String topic = kit.topic("acks", 1);
        for (String acks : List.of("0", "1", "all")) {
            try (Producer<String, String> producer = kit.producer("acks", acks, "enable.idempotence", "false")) {
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>(topic, acks + i));
                }
            }
        }
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        consumer.seekToBeginning(consumer.assignment());
        Kit.read(consumer, 30);
    }

    static void tombstonesAndEmptyValuesAreNotTheSame(Kit kit) throws Exception {
        String topic = kit.topic("tombstones", 1);
        Producer<String, String> producer = kit.producer();
        producer.send(new ProducerRecord<>(topic, "key", ""));
        producer.send(new ProducerRecord<>(topic, "key", null)).get();
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        List<ConsumerRecord<String, String>> records = Kit.read(consumer, 2);
        Kit.same("", records.get(0).value(), "empty value");
        Kit.check(records.get(1).value() == null, "a tombstone is null");
    }

    /** Larger than what the consumer asks for: the first batch comes whole (KIP-74). */
    static void largeMessagesPassWhereTheTopicAllowsThem(Kit kit) throws Exception {
        String large = "x".repeat(5_000_000);
        String topic = kit.topic("large", 1, "max.message.bytes", "6000000");
        Producer<String, String> producer = kit.producer("max.request.size", "10000000");
        producer.send(new ProducerRecord<>(topic, "small"));
        producer.send(new ProducerRecord<>(topic, large));
        producer.send(new ProducerRecord<>(topic, "small")).get();
        Consumer<String, String> consumer =
                kit.consumer("max.partition.fetch.bytes", "1000", "fetch.max.bytes", "1000");
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        Kit.check(Kit.values(Kit.read(consumer, 3)).equals(List.of("small", large, "small")), "all three come back");
    }

    static void aMessageThatIsTooLargeIsRefusedAndTheNextOneIsNot(Kit kit) throws Exception {
        String topic = kit.topic("too-large", 1, "max.message.bytes", "2000");
        Producer<String, String> producer = kit.producer();
        Kit.fails(RecordTooLargeException.class,
                () -> producer.send(new ProducerRecord<>(topic, "x".repeat(3000))).get());
        Kit.same(0L, producer.send(new ProducerRecord<>(topic, "small")).get().offset(), "offset");
    }

    /** The client halves a batch that is refused for its size, and goes on with the halves. */
    static void aBatchThatIsTooLargeIsSplitByTheProducer(Kit kit) throws Exception {
        String topic = kit.topic("split", 1, "max.message.bytes", "2000");
        Producer<String, String> producer = kit.producer("batch.size", "10000", "linger.ms", "50");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, i + "x".repeat(150))));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        List<String> values = Kit.values(Kit.read(consumer, 50));
        for (int i = 0; i < 50; i++) {
            Kit.check(values.get(i).startsWith(i + "x"), "in order: " + i);
        }
    }

    static void theTopicMayStampRecordsItself(Kit kit) throws Exception {
        String topic = kit.topic("stamped", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        RecordMetadata sent = kit.producer().send(new ProducerRecord<>(topic, 0, 1L, "key", "value")).get();
        Kit.check(sent.timestamp() >= before, "the producer is told the broker's time");
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        ConsumerRecord<String, String> record = Kit.read(consumer, 1).get(0);
        Kit.same(TimestampType.LOG_APPEND_TIME, record.timestampType(), "type");
        Kit.same(sent.timestamp(), record.timestamp(), "timestamp");
    }

    static void offsetsAreFoundByTime(Kit kit) throws Exception {
        String topic = kit.topic("times", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Producer<String, String> producer = kit.producer("batch.size", "200");
        for (int i = 0; i < 100; i++) {
            producer.send(new ProducerRecord<>(topic, 0, 1000L * (i + 1), "key", "value" + i));
        }
        producer.flush();
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(partition));
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 49_500L)).get(partition);
        Kit.same(49L, found.offset(), "the first offset at or after the time");
        Kit.same(50_000L, found.timestamp(), "its time");
        Kit.check(consumer.offsetsForTimes(Map.of(partition, 100_001L)).get(partition) == null, "none is that late");
        consumer.seek(partition, found.offset());
        Kit.same("value49", Kit.values(Kit.read(consumer, 51)).get(0), "value");
        Kit.same(0L, consumer.beginningOffsets(List.of(partition)).get(partition), "beginning");
        Kit.same(100L, consumer.endOffsets(List.of(partition)).get(partition), "end");
        Kit.same(0L, consumer.currentLag(partition).getAsLong(), "lag");
        var latest = kit.admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition);
        Kit.same(99L, latest.get().offset(), "the offset of the latest time");
    }

    /** `by_duration` is of 4.0 (KIP-1106): it asks for the offset of a time. */
    static void aConsumerStartsAtAnAge(Kit kit) throws Exception {
        String topic = kit.topic("ages", 1);
        long now = System.currentTimeMillis();
        Producer<String, String> producer = kit.producer();
        producer.send(new ProducerRecord<>(topic, 0, now - Duration.ofHours(2).toMillis(), "key", "old"));
        producer.send(new ProducerRecord<>(topic, 0, now, "key", "new")).get();
        Consumer<String, String> consumer = kit.consumer("auto.offset.reset", "by_duration:PT1H");
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        Kit.same(List.of("new"), Kit.values(Kit.read(consumer, 1)), "values");
    }

    static void anOffsetOutOfRangeIsSaidToBe(Kit kit) throws Exception {
        String topic = kit.topic("range", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        kit.producer().send(new ProducerRecord<>(topic, "only")).get();
        Consumer<String, String> strict = kit.consumer("auto.offset.reset", "none");
        strict.assign(List.of(partition));
        strict.seek(partition, 100);
        Kit.fails(OffsetOutOfRangeException.class, () -> {
            Kit.read(strict, 1);
            return null;
        });
        Consumer<String, String> lenient = kit.consumer();
        lenient.assign(List.of(partition));
        lenient.seek(partition, 100);
        Kit.same(List.of("only"), Kit.values(Kit.read(lenient, 1)), "values after the reset");
    }

    /** The producer's next batch follows one that is not in the log any more. */
    static void anIdempotentProducerGoesOnAfterItsRecordsAreDeleted(Kit kit) throws Exception {
        String topic = kit.topic("emptied", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Producer<String, String> producer = kit.producer();
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 10; i++) {
                Kit.same(10L * round + i, producer.send(new ProducerRecord<>(topic, "value")).get().offset(), "offset");
            }
            kit.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all().get();
        }
    }

    /** Both clients know the topic by its id, which is another one afterwards (KIP-516). */
    static void clientsSurviveThatATopicIsMadeAnew(Kit kit) throws Exception {
        String topic = kit.topic("anew", 1);
        Producer<String, String> producer = kit.producer("metadata.max.age.ms", "500");
        Consumer<String, String> consumer = kit.consumer("metadata.max.age.ms", "500");
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        producer.send(new ProducerRecord<>(topic, "before")).get();
        Kit.same(List.of("before"), Kit.values(Kit.read(consumer, 1)), "values");
        kit.admin.deleteTopics(List.of(topic)).all().get();
        kit.topic("anew", 1);
        producer.send(new ProducerRecord<>(topic, "after")).get();
        consumer.seekToBeginning(consumer.assignment());
        Kit.same(List.of("after"), Kit.values(Kit.read(consumer, 1)), "values");
    }

    /** It must be told at once, not after a minute of retries. */
    static void whatIsNotServedIsRefusedAtOnce(Kit kit) throws Exception {
        String topic = kit.topic("refused", 1);
        long before = System.nanoTime();
        Consumer<String, String> newer = kit.consumer("group.id", kit.name, "group.protocol", "consumer");
        newer.subscribe(List.of(topic));
        Kit.fails(UnsupportedVersionException.class, () -> Kit.read(newer, 1));
        Kit.check(System.nanoTime() - before < Duration.ofSeconds(5).toNanos(), "at once");
    }
}
