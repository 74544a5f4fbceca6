package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// topics creates, lists, grows and deletes topics, as `rpk topic` does, and with invalid arguments.
func topics(k *kit) {
	checked, err := k.admin.ValidateCreateTopics(k.ctx, 2, 1, nil, k.topic)
	check(err, "validate")
	check(checked[k.topic].Err, "validate")
	listed, err := k.admin.ListTopics(k.ctx, k.topic)
	check(err, "list")
	expectError("a topic that was only validated", listed[k.topic].Err, kerr.UnknownTopicOrPartition)
	k.create(2)
	again, err := k.admin.CreateTopics(k.ctx, 2, 1, nil, k.topic, "in valid")
	check(err, "create again")
	expectError("a second creation", again[k.topic].Err, kerr.TopicAlreadyExists)
	expectError("an invalid name", again["in valid"].Err, kerr.InvalidTopicException)
	replicated, err := k.admin.CreateTopics(k.ctx, -1, -1, nil, k.topic+"-default")
	check(err, "create with defaults")
	check(replicated[k.topic+"-default"].Err, "create with defaults")
	tooMany, err := k.admin.CreateTopics(k.ctx, 1, 5, nil, k.topic+"-five")
	check(err, "create with 5 replicas")
	expectError("5 replicas on one broker", tooMany[k.topic+"-five"].Err, kerr.InvalidReplicationFactor)
	grown, err := k.admin.UpdatePartitions(k.ctx, 5, k.topic)
	check(err, "grow")
	check(grown[k.topic].Err, "grow")
	shrunk, err := k.admin.UpdatePartitions(k.ctx, 1, k.topic)
	check(err, "shrink")
	expectError("fewer partitions", shrunk[k.topic].Err, kerr.InvalidPartitions)
	listed, err = k.admin.ListTopics(k.ctx, k.topic)
	check(err, "list")
	expect("partitions", len(listed[k.topic].Partitions), 5)
	expect("leaders", listed[k.topic].Partitions[4].Leader, listed[k.topic].Partitions[4].Replicas[0])
	deleted, err := k.admin.DeleteTopics(k.ctx, k.topic, "no-such-topic")
	check(err, "delete")
	check(deleted[k.topic].Err, "delete")
	expectError("deletion of an unknown topic", deleted["no-such-topic"].Err, kerr.UnknownTopicOrPartition)
}

// settings describes and changes settings of topics and brokers.
func settings(k *kit) {
	seven := "604800000"
	_, err := k.admin.CreateTopic(k.ctx, 1, 1, map[string]*string{"retention.ms": &seven}, k.topic)
	check(err, "create")
	values := func() map[string]string {
		described, err := k.admin.DescribeTopicConfigs(k.ctx, k.topic)
		check(err, "describe")
		found := map[string]string{}
		for _, config := range described[0].Configs {
			found[config.Key] = config.MaybeValue() + " " + config.Source.String()
		}
		return found
	}
	expect("retention", values()["retention.ms"], seven+" DYNAMIC_TOPIC_CONFIG")
	unset := values()["segment.bytes"]
	large := "33554432"
	changes := []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "segment.bytes", Value: &large},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")},
	}
	altered, err := k.admin.AlterTopicConfigs(k.ctx, changes, k.topic)
	check(err, "alter")
	check(altered[0].Err, "alter")
	expect("segment", values()["segment.bytes"], large+" DYNAMIC_TOPIC_CONFIG")
	// The order of the two has no meaning.
	expect("policy", values()["cleanup.policy"], "compact,delete DYNAMIC_TOPIC_CONFIG")
	changes = []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "segment.bytes"}}
	altered, err = k.admin.AlterTopicConfigs(k.ctx, changes, k.topic)
	check(err, "unset")
	check(altered[0].Err, "unset")
	expect("segment after unset", values()["segment.bytes"], unset)
	changes = []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "no.such.setting", Value: &large}}
	altered, err = k.admin.AlterTopicConfigs(k.ctx, changes, k.topic)
	check(err, "unknown setting")
	expectError("an unknown setting", altered[0].Err, kerr.InvalidConfig)
	brokers, err := k.admin.ListBrokers(k.ctx)
	check(err, "brokers")
	configs, err := k.admin.DescribeBrokerConfigs(k.ctx, brokers[0].NodeID)
	check(err, "describe broker")
	if len(configs) != 1 || len(configs[0].Configs) < 20 {
		fail("settings of the broker: %v", configs)
	}
}

// offsets lists offsets by every kind of position, trims a partition and reads by time.
func offsets(k *kit) {
	k.create(1)
	producer := k.client()
	defer producer.Close()
	for number := range 10 {
		at := time.UnixMilli(int64(1_700_000_000_000 + number*1000))
		record := &kgo.Record{Topic: k.topic, Value: fmt.Appendf(nil, "%d", number), Timestamp: at}
		check(producer.ProduceSync(k.ctx, record).FirstErr(), "produce")
	}
	position := func(name string, listed kadm.ListedOffsets, err error, wanted int64) {
		check(err, name)
		offset, found := listed.Lookup(k.topic, 0)
		if !found {
			fail("%s: no offset", name)
		}
		check(offset.Err, name)
		expect(name, offset.Offset, wanted)
	}
	trim := kadm.Offsets{}
	trim.Add(kadm.Offset{Topic: k.topic, Partition: 0, At: 3, LeaderEpoch: -1})
	trimmed, err := k.admin.DeleteRecords(k.ctx, trim)
	check(err, "trim")
	check(trimmed.Error(), "trim")
	listed, err := k.admin.ListStartOffsets(k.ctx, k.topic)
	position("start", listed, err, 3)
	listed, err = k.admin.ListEndOffsets(k.ctx, k.topic)
	position("end", listed, err, 10)
	listed, err = k.admin.ListCommittedOffsets(k.ctx, k.topic)
	position("committed end", listed, err, 10)
	listed, err = k.admin.ListOffsetsAfterMilli(k.ctx, 1_700_000_004_500, k.topic)
	position("by time", listed, err, 5)
	listed, err = k.admin.ListMaxTimestampOffsets(k.ctx, k.topic)
	position("largest timestamp", listed, err, 9)
	listed, err = k.admin.ListLocalLogStartOffsets(k.ctx, k.topic)
	position("local start", listed, err, 3)
	beyond := kadm.Offsets{}
	beyond.Add(kadm.Offset{Topic: k.topic, Partition: 0, At: 99, LeaderEpoch: -1})
	trimmed, err = k.admin.DeleteRecords(k.ctx, beyond)
	check(err, "trim beyond the end")
	expectError("trim beyond the end", trimmed[k.topic][0].Err, kerr.OffsetOutOfRange)
	reset := kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(1_700_000_007_000))
	consumer := k.client(kgo.ConsumeTopics(k.topic), reset)
	defer consumer.Close()
	expect("records by time", k.read(consumer, 3), []string{"7", "8", "9"})
	request := kadm.OffsetForLeaderEpochRequest{}
	request.Add(k.topic, 0, 0)
	epochs, err := k.admin.OffsetForLeaderEpoch(k.ctx, request)
	check(err, "end of an epoch")
	check(epochs[k.topic][0].Err, "end of an epoch")
	expect("end of an epoch", epochs[k.topic][0].EndOffset, int64(10))
}

// cluster asks what `rpk cluster info`, `logdirs describe` and the overview of Redpanda Console show.
func cluster(k *kit) {
	k.create(3)
	producer := k.client()
	defer producer.Close()
	k.produce(producer, numbered("v", 10)...)
	metadata, err := k.admin.Metadata(k.ctx)
	check(err, "metadata")
	expect("brokers", len(metadata.Brokers), 1)
	expect("controller", metadata.Controller, metadata.Brokers[0].NodeID)
	if metadata.Cluster == "" || !metadata.Topics.Has(k.topic) {
		fail("metadata: %+v", metadata)
	}
	versions, err := k.admin.ApiVersions(k.ctx)
	check(err, "versions")
	for _, broker := range versions {
		check(broker.Err, "versions")
		if guess := broker.VersionGuess(kversion.SkipKeys(4, 5, 6, 7)); guess == "" || guess == "unknown" {
			fail("the version of the broker is guessed as %q", guess)
		}
	}
	directories, err := k.admin.DescribeAllLogDirs(k.ctx, nil)
	check(err, "log directories")
	size := int64(0)
	directories.Each(func(directory kadm.DescribedLogDir) {
		check(directory.Err, "log directory")
		directory.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
			if partition.Topic == k.topic {
				size += partition.Size
			}
		})
	})
	if size < 10*60 {
		fail("the topic has %d bytes", size)
	}
	moves, err := k.admin.ListPartitionReassignments(k.ctx, nil)
	check(err, "moves")
	expect("moves", len(moves), 0)
	elected, err := k.admin.ElectLeaders(k.ctx, kadm.ElectPreferredReplica, metadata.Topics.TopicsSet())
	check(err, "elect")
	for _, result := range elected[k.topic] {
		expectError("election of the leader", result.Err, kerr.ElectionNotNeeded)
	}
}

// quotas sets, describes and removes a quota, as `rpk cluster quotas` does.
func quotas(k *kit) {
	name := k.topic
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}}
	alter := func(remove bool) {
		operations := []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 5e6, Remove: remove}}
		altered, err := k.admin.AlterClientQuotas(k.ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: operations}})
		check(err, "alter quota")
		check(altered[0].Err, "alter quota")
	}
	describe := func() kadm.DescribedClientQuotas {
		component := kadm.DescribeClientQuotaComponent{Type: "client-id", MatchName: &name, MatchType: kmsg.QuotasMatchTypeExact}
		described, err := k.admin.DescribeClientQuotas(k.ctx, true, []kadm.DescribeClientQuotaComponent{component})
		check(err, "describe quotas")
		return described
	}
	alter(false)
	expect("quota", describe()[0].Values[0].Value, 5e6)
	alter(true)
	expect("quotas after removal", len(describe()), 0)
}

// withoutAuthentication asks for users and ACLs of a broker that has none.
func withoutAuthentication(k *kit) {
	results, err := k.admin.DescribeACLs(k.ctx, kadm.NewACLs().AnyResource().Allow().Deny().AllowHosts().DenyHosts().
		Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny))
	check(err, "describe ACLs")
	for _, result := range results {
		expectError("ACLs without an authorizer", result.Err, kerr.SecurityDisabled)
	}
	users, err := k.admin.DescribeUserSCRAMs(k.ctx)
	check(err, "describe users")
	expect("users", len(users), 0)
}

// security manages users and ACLs, as `rpk security` does; the environment has the login of a superuser.
func security(k *kit) {
	k.create(1)
	name, password := "franz", "secret"
	upsert := kadm.UpsertSCRAM{User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password}
	altered, err := k.admin.AlterUserSCRAMs(k.ctx, nil, []kadm.UpsertSCRAM{upsert})
	check(err, "create user")
	check(altered[name].Err, "create user")
	users, err := k.admin.DescribeUserSCRAMs(k.ctx, name)
	check(err, "describe user")
	expect("iterations", users[name].CredInfos[0].Iterations, int32(4096))

	client := k.clientOf(name, password)
	defer client.Close()
	record := &kgo.Record{Topic: k.topic, Value: []byte("v")}
	denied := client.ProduceSync(k.ctx, record).FirstErr()
	expectError("a record without an ACL", denied, kerr.TopicAuthorizationFailed)

	builder := kadm.NewACLs().Topics("franz-").ResourcePatternType(kadm.ACLPatternPrefixed).
		Operations(kadm.OpWrite, kadm.OpDescribe).Allow("User:" + name).AllowHosts()
	created, err := k.admin.CreateACLs(k.ctx, builder)
	check(err, "create ACLs")
	for _, result := range created {
		check(result.Err, "create ACL")
	}
	writer := k.clientOf(name, password)
	defer writer.Close()
	check(writer.ProduceSync(k.ctx, &kgo.Record{Topic: k.topic, Value: []byte("v")}).FirstErr(), "produce with an ACL")

	filter := kadm.NewACLs().Topics("franz-").ResourcePatternType(kadm.ACLPatternPrefixed).
		Operations(kadm.OpAny).Allow("User:" + name).AllowHosts()
	described, err := k.admin.DescribeACLs(k.ctx, filter)
	check(err, "describe ACLs")
	expect("ACLs", len(described[0].Described), 2)
	deleted, err := k.admin.DeleteACLs(k.ctx, filter)
	check(err, "delete ACLs")
	expect("deleted ACLs", len(deleted[0].Deleted), 2)
	gone, err := k.admin.AlterUserSCRAMs(k.ctx, []kadm.DeleteSCRAM{{User: name, Mechanism: kadm.ScramSha256}}, nil)
	check(err, "delete user")
	check(gone[name].Err, "delete user")
}
