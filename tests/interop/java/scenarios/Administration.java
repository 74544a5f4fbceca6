import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ClassicGroupState;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What Kafka's Admin asks for, and the errors that its users tell apart. */
final class Administration {
    static void topicsAreMadeDescribedGrownAndDeleted(Kit kit) throws Exception {
        String name = kit.name + "-made";
        NewTopic topic = new NewTopic(name, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "60000"));
        kit.admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(true)).all().get();
        Kit.check(!kit.admin.listTopics().names().get().contains(name), "it was only validated");
        var made = kit.admin.createTopics(List.of(topic));
        Kit.same(3, made.numPartitions(name).get(), "partitions");
        Kit.same(1, made.replicationFactor(name).get(), "replication factor");
        Kit.same("60000", made.config(name).get().get("retention.ms").value(), "retention.ms");
        Uuid id = made.topicId(name).get();

        TopicDescription described = kit.admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Kit.same(id, described.topicId(), "id");
        Kit.same(3, described.partitions().size(), "partitions");
        Kit.check(!described.isInternal(), "it is nobody's internal topic");
        TopicCollection byId = TopicCollection.ofTopicIds(List.of(id));
        Kit.same(name, kit.admin.describeTopics(byId).allTopicIds().get().get(id).name(), "the name of the id");

        kit.admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all().get();
        described = kit.admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Kit.same(5, described.partitions().size(), "partitions");
        kit.admin.deleteTopics(byId).all().get();
        Kit.check(!kit.admin.listTopics().names().get().contains(name), "it is deleted");
        Kit.fails(UnknownTopicIdException.class, () -> kit.admin.describeTopics(byId).allTopicIds());
    }

    static void wrongTopicsAreRefusedForWhatIsWrong(Kit kit) throws Exception {
        String name = kit.topic("there", 2);
        Kit.fails(TopicExistsException.class, () -> create(kit, new NewTopic(name, 1, (short) 1)));
        Kit.fails(InvalidTopicException.class, () -> create(kit, new NewTopic("no spaces", 1, (short) 1)));
        Kit.fails(InvalidTopicException.class, () -> create(kit, new NewTopic("x".repeat(250), 1, (short) 1)));
        Kit.fails(InvalidPartitionsException.class, () -> create(kit, new NewTopic(name + "0", 0, (short) 1)));
        Kit.fails(InvalidReplicationFactorException.class, () -> create(kit, new NewTopic(name + "3", 1, (short) 3)));
        NewTopic badSetting = new NewTopic(name + "s", 1, (short) 1).configs(Map.of("retention.ms", "soon"));
        Kit.fails(InvalidConfigurationException.class, () -> create(kit, badSetting));
        Kit.fails(InvalidPartitionsException.class,
                () -> kit.admin.createPartitions(Map.of(name, NewPartitions.increaseTo(1))).all());
        Kit.fails(UnknownTopicOrPartitionException.class, () -> kit.admin.deleteTopics(List.of("absent")).all());
        Kit.fails(UnknownTopicOrPartitionException.class,
                () -> kit.admin.describeTopics(List.of("absent")).allTopicNames());
        Kit.fails(UnknownTopicOrPartitionException.class,
                () -> kit.admin.createPartitions(Map.of("absent", NewPartitions.increaseTo(9))).all());
    }

    static void settingsAreChangedOneByOne(Kit kit) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, kit.topic("set", 1));
        Kit.same(ConfigEntry.ConfigSource.DEFAULT_CONFIG, settings(kit, topic).get("retention.ms").source(), "source");
        change(kit, topic, AlterConfigOp.OpType.SET, "retention.ms", "1000");
        change(kit, topic, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        ConfigEntry changed = settings(kit, topic).get("retention.ms");
        Kit.same("1000", changed.value(), "retention.ms");
        Kit.same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, changed.source(), "source");
        Kit.same(ConfigEntry.ConfigType.LONG, changed.type(), "type");
        Kit.same(Set.of("compact", "delete"), Set.of(settings(kit, topic).get("cleanup.policy").value().split(",")),
                "cleanup.policy");
        change(kit, topic, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete");
        Kit.same("compact", settings(kit, topic).get("cleanup.policy").value(), "cleanup.policy");
        change(kit, topic, AlterConfigOp.OpType.DELETE, "retention.ms", "");
        Kit.check(settings(kit, topic).get("retention.ms").isDefault(), "it is the default again");
        Kit.fails(InvalidConfigurationException.class, () -> {
            change(kit, topic, AlterConfigOp.OpType.SET, "segment.bytes", "-5");
            return null;
        });
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        Kit.check(settings(kit, broker).get("log.retention.ms") != null, "the broker's settings are there");
        ConfigResource absent = new ConfigResource(ConfigResource.Type.TOPIC, "absent");
        Kit.fails(UnknownTopicOrPartitionException.class, () -> settings(kit, absent));
    }

    static void theClusterTellsWhatItIs(Kit kit) throws Exception {
        var cluster = kit.admin.describeCluster();
        Kit.same(1, cluster.nodes().get().size(), "nodes");
        Kit.same(cluster.nodes().get().iterator().next(), cluster.controller().get(), "controller");
        Kit.check(!cluster.clusterId().get().isEmpty(), "it has an id");
        String topic = kit.topic("stored", 1);
        kit.producer().send(new ProducerRecord<>(topic, "value")).get();
        int node = cluster.controller().get().id();
        var directories = kit.admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        Kit.same(1, directories.size(), "directories");
        var directory = directories.values().iterator().next();
        long size = directory.replicaInfos().get(new TopicPartition(topic, 0)).size();
        Kit.check(size > 60 && size < 100, "a record has " + size + " bytes on the disk");
        Kit.check(kit.admin.listTopics(new ListTopicsOptions().listInternal(false)).names().get()
                .stream().noneMatch(name -> name.startsWith("__")), "internal topics are marked");
        var features = kit.admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        Kit.same(Short.valueOf((short) 2), features.get("transaction.version").maxVersionLevel(), "transactions");
        Kit.same(Map.of(), kit.admin.describeUserScramCredentials().all().get(), "SCRAM users");
    }

    static void recordsAreDeletedUpToAnOffset(Kit kit) throws Exception {
        TopicPartition partition = new TopicPartition(kit.topic("trimmed", 1), 0);
        Producer<String, String> producer = kit.producer();
        for (int i = 0; i < 10; i++) {
            producer.send(new ProducerRecord<>(partition.topic(), "value" + i)).get();
        }
        var deleted = kit.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)));
        Kit.same(4L, deleted.lowWatermarks().get(partition).get().lowWatermark(), "low watermark");
        var earliest = kit.admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition);
        Kit.same(4L, earliest.get().offset(), "earliest");
        Consumer<String, String> consumer = kit.consumer();
        consumer.assign(List.of(partition));
        Kit.same("value4", Kit.values(Kit.read(consumer, 6)).get(0), "the first value");
        List<ProducerState> states = kit.admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers();
        Kit.same(1, states.size(), "producers");
        Kit.same(9, states.get(0).lastSequence(), "its last sequence");
        Kit.fails(OffsetOutOfRangeException.class,
                () -> kit.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(11))).all());
    }

    static void groupsAreListedDescribedChangedAndDeleted(Kit kit) throws Exception {
        String topic = kit.topic("grouped", 2);
        TopicPartition zero = new TopicPartition(topic, 0);
        Consumer<String, String> member =
                kit.consumer("group.id", kit.name, "client.id", "one", "group.instance.id", "i");
        member.subscribe(List.of(topic));
        Kit.until("it has its partitions", () -> member.poll(Kit.SHORT) != null && member.assignment().size() == 2);
        member.commitSync(Map.of(zero, new OffsetAndMetadata(0, "note")));

        ListGroupsOptions stable = new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE));
        GroupListing listed = kit.admin.listGroups(stable).all().get().stream()
                .filter(group -> group.groupId().equals(kit.name)).findFirst().orElseThrow();
        Kit.same(Optional.of(GroupType.CLASSIC), listed.type(), "type");
        Kit.same("consumer", listed.protocol(), "protocol");
        var described = kit.admin.describeConsumerGroups(List.of(kit.name)).all().get().get(kit.name);
        Kit.same(GroupState.STABLE, described.groupState(), "state");
        Kit.same("range", described.partitionAssignor(), "assignor");
        var only = described.members().iterator().next();
        Kit.same("one", only.clientId(), "client");
        Kit.same(Optional.of("i"), only.groupInstanceId(), "instance");
        Kit.same(2, only.assignment().topicPartitions().size(), "its partitions");
        Kit.same(ClassicGroupState.STABLE,
                kit.admin.describeClassicGroups(List.of(kit.name)).all().get().get(kit.name).state(), "state");

        Kit.fails(GroupNotEmptyException.class, () -> kit.admin.deleteConsumerGroups(List.of(kit.name)).all());
        Kit.fails(GroupSubscribedToTopicException.class,
                () -> kit.admin.deleteConsumerGroupOffsets(kit.name, Set.of(zero)).partitionResult(zero));
        var removal = new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("i")));
        kit.admin.removeMembersFromConsumerGroup(kit.name, removal).all().get();
        kit.admin.alterConsumerGroupOffsets(kit.name, Map.of(zero, new OffsetAndMetadata(5, "moved"))).all().get();
        var offsets = kit.admin.listConsumerGroupOffsets(kit.name).partitionsToOffsetAndMetadata().get();
        Kit.same(Map.of(zero, new OffsetAndMetadata(5, Optional.empty(), "moved")), offsets, "offsets");
        kit.admin.deleteConsumerGroupOffsets(kit.name, Set.of(zero)).all().get();
        Kit.check(kit.admin.listConsumerGroupOffsets(kit.name).partitionsToOffsetAndMetadata().get().isEmpty(),
                "its offsets are deleted");
        kit.admin.deleteConsumerGroups(List.of(kit.name)).all().get();
        Kit.fails(GroupIdNotFoundException.class, () -> kit.admin.deleteConsumerGroups(List.of(kit.name)).all());
        Kit.fails(GroupIdNotFoundException.class, () -> kit.admin.describeConsumerGroups(List.of(kit.name)).all());
    }

    private static Object create(Kit kit, NewTopic topic) {
        return kit.admin.createTopics(List.of(topic)).all();
    }

    private static Config settings(Kit kit, ConfigResource resource) throws Exception {
        return kit.admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private static void change(Kit kit, ConfigResource of, AlterConfigOp.OpType how, String name, String value)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), how);
        kit.admin.incrementalAlterConfigs(Map.of(of, List.of(change))).all().get();
    }
}
