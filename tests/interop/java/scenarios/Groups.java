import static org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation.LEAVE_GROUP;
import static org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;

/** Consumers that share the partitions of a topic. One thread polls them all in turn. */
final class Groups {
    private static final String COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
    private static final int PARTITIONS = 6;

    static void rangeAssignorSharesPartitions(Kit kit) throws Exception {
        partitionsFollowTheMembers(kit, "org.apache.kafka.clients.consumer.RangeAssignor");
    }

    static void cooperativeStickyAssignorSharesPartitions(Kit kit) throws Exception {
        partitionsFollowTheMembers(kit, COOPERATIVE);
    }

    /** Three join, one leaves, one dies: every record is read, and every partition has one owner. */
    private static void partitionsFollowTheMembers(Kit kit, String assignor) throws Exception {
        String topic = kit.topic("shared", PARTITIONS);
        List<Consumer<String, String>> members = new ArrayList<>();
        Set<String> values = new HashSet<>();
        for (int i = 0; i < 3; i++) {
            members.add(member(kit, assignor, "member" + i));
            members.get(i).subscribe(List.of(topic));
            balanced(members, values);
        }
        send(kit, topic, "first");
        Kit.until("three read all", () -> poll(members, values) && values.size() == 60);
        members.forEach(Consumer::commitSync);
        members.remove(0).close();
        balanced(members, values);
        // It is gone without a word, and its session has to run out.
        members.remove(0).close(CloseOptions.groupMembershipOperation(REMAIN_IN_GROUP));
        balanced(members, values);
        Kit.same(60, values.size(), "nothing is read again after a commit");
        send(kit, topic, "second");
        Kit.until("one reads all", () -> poll(members, values) && values.size() == 120);
    }

    static void aMemberThatDoesNotPollIsOutAndCannotCommit(Kit kit) throws Exception {
        String topic = kit.topic("busy", 1);
        Consumer<String, String> busy = kit.consumer("group.id", kit.name, "max.poll.interval.ms", "300",
                "session.timeout.ms", "6000", "heartbeat.interval.ms", "50");
        busy.subscribe(List.of(topic));
        has(busy, 1);
        Kit.until("it is out", () -> kit.admin.describeConsumerGroups(List.of(kit.name)).all().get().get(kit.name)
                .groupState() == GroupState.EMPTY);
        Kit.fails(CommitFailedException.class, () -> {
            busy.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0)));
            return null;
        });
    }

    /** Those who keep a partition are never asked to give it up (KIP-429). */
    static void cooperativeMembersKeepWhatTheyHave(Kit kit) throws Exception {
        String topic = kit.topic("kept", PARTITIONS);
        List<Consumer<String, String>> members = new ArrayList<>();
        Set<TopicPartition> revoked = new HashSet<>();
        Consumer<String, String> first = member(kit, COOPERATIVE, "first");
        first.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                revoked.addAll(partitions);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
        });
        members.add(first);
        balanced(members, new HashSet<>());
        members.add(member(kit, COOPERATIVE, "second"));
        members.get(1).subscribe(List.of(topic));
        balanced(members, new HashSet<>());
        Kit.same(members.get(1).assignment(), revoked, "what was revoked");
    }

    /** It comes back within its session, and nobody notices (KIP-345). */
    static void aStaticMemberReturnsWithoutARebalance(Kit kit) throws Exception {
        String topic = kit.topic("static", PARTITIONS);
        List<Consumer<String, String>> members = new ArrayList<>();
        for (String instance : List.of("a", "b")) {
            members.add(member(kit, COOPERATIVE, instance, "group.instance.id", instance));
            members.get(members.size() - 1).subscribe(List.of(topic));
        }
        balanced(members, new HashSet<>());
        int generation = members.get(1).groupMetadata().generationId();
        Set<TopicPartition> assignment = members.get(0).assignment();
        // A static member that is closed does not leave.
        members.get(0).close();
        members.set(0, member(kit, COOPERATIVE, "again", "group.instance.id", "a"));
        members.get(0).subscribe(List.of(topic));
        balanced(members, new HashSet<>());
        Kit.same(assignment, members.get(0).assignment(), "the assignment after the return");
        Kit.same(generation, members.get(1).groupMetadata().generationId(), "the generation after the return");
        // It leaves where it is told to, and the other one gets everything at once.
        members.remove(0).close(CloseOptions.groupMembershipOperation(LEAVE_GROUP));
        balanced(members, new HashSet<>());
    }

    static void ofTwoWithTheSameInstanceTheLaterOneStays(Kit kit) throws Exception {
        String topic = kit.topic("fenced", 2);
        Consumer<String, String> earlier = member(kit, COOPERATIVE, "earlier", "group.instance.id", "same");
        earlier.subscribe(List.of(topic));
        has(earlier, 2);
        Consumer<String, String> later = member(kit, COOPERATIVE, "later", "group.instance.id", "same");
        later.subscribe(List.of(topic));
        has(later, 2);
        Kit.fails(FencedInstanceIdException.class, () -> {
            Kit.until("the earlier one is fenced", () -> earlier.poll(Kit.SHORT) == null);
            return null;
        });
    }

    static void committedOffsetsComeBackWithTheirMetadata(Kit kit) throws Exception {
        String topic = kit.topic("committed", 2);
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        Producer<String, String> producer = kit.producer();
        for (int i = 0; i < 10; i++) {
            producer.send(new ProducerRecord<>(topic, 0, "key", "value" + i));
        }
        producer.flush();
        // Without a membership, as an application does that assigns its partitions itself.
        Consumer<String, String> writer = kit.consumer("group.id", kit.name);
        writer.assign(List.of(zero, one));
        Kit.read(writer, 10);
        writer.commitSync(Map.of(zero, new OffsetAndMetadata(7, "seven")));
        Consumer<String, String> reader = kit.consumer("group.id", kit.name);
        Map<TopicPartition, OffsetAndMetadata> committed = reader.committed(Set.of(zero, one));
        Kit.same(7L, committed.get(zero).offset(), "offset");
        Kit.same("seven", committed.get(zero).metadata(), "metadata");
        Kit.check(committed.get(one) == null, "nothing was committed there");
        reader.assign(List.of(zero));
        Kit.same(List.of("value7", "value8", "value9"), Kit.values(Kit.read(reader, 3)), "values after the commit");
    }

    static void topicsThatMatchAPatternAreFoundLater(Kit kit) throws Exception {
        kit.topic("matched-1", 1);
        Consumer<String, String> consumer = kit.consumer("group.id", kit.name, "metadata.max.age.ms", "200");
        consumer.subscribe(Pattern.compile(kit.name + "-matched-.*"));
        has(consumer, 1);
        String later = kit.topic("matched-2", 2);
        has(consumer, 3);
        kit.admin.deleteTopics(List.of(later)).all().get();
        has(consumer, 1);
    }

    private static Consumer<String, String> member(Kit kit, String assignor, String client, String... settings) {
        Map<String, String> all = new HashMap<>(Map.of(
                "group.id", kit.name,
                "client.id", client,
                "partition.assignment.strategy", assignor,
                "session.timeout.ms", "1500",
                "heartbeat.interval.ms", "100"));
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        return kit.consumer(all.entrySet().stream()
                .flatMap(entry -> Stream.of(entry.getKey(), entry.getValue()))
                .toArray(String[]::new));
    }

    /** Waits until the members have equal parts that make up the whole, and all are of one generation. */
    private static void balanced(List<Consumer<String, String>> members, Set<String> values) throws Exception {
        Kit.until("the " + members.size() + " members have equal parts", () -> {
            poll(members, values);
            Set<TopicPartition> all = new HashSet<>();
            boolean isEqual = true;
            for (Consumer<String, String> member : members) {
                all.addAll(member.assignment());
                isEqual &= member.assignment().size() == PARTITIONS / members.size();
                isEqual &= member.groupMetadata().generationId() == members.get(0).groupMetadata().generationId();
            }
            return isEqual && all.size() == PARTITIONS;
        });
    }

    private static void has(Consumer<String, String> member, int partitions) throws Exception {
        Kit.until("it has " + partitions + " partitions",
                () -> member.poll(Kit.SHORT) != null && member.assignment().size() == partitions);
    }

    private static boolean poll(List<Consumer<String, String>> members, Set<String> values) {
        for (Consumer<String, String> member : members) {
            for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(5))) {
                values.add(record.value());
            }
        }
        return true;
    }

    private static void send(Kit kit, String topic, String prefix) {
        Producer<String, String> producer = kit.producer();
        for (int i = 0; i < 60; i++) {
            producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "key", prefix + i));
        }
        producer.flush();
    }
}
