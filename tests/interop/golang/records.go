package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// records writes and reads keys, nulls, headers and timestamps, as `rpk topic produce` and `consume` do.
func records(k *kit) {
	k.create(3)
	producer := k.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	at := time.UnixMilli(1_700_000_000_123)
	written := []*kgo.Record{
		{Topic: k.topic, Partition: 2, Key: []byte("k"), Value: []byte("v"), Timestamp: at},
		{Topic: k.topic, Partition: 2, Timestamp: at, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "n"}}},
		{Topic: k.topic, Partition: 2, Key: []byte{}, Value: []byte(strings.Repeat("x", 900_000)), Timestamp: at},
	}
	check(producer.ProduceSync(k.ctx, written...).FirstErr(), "produce")
	consumer := k.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: {2: kgo.NewOffset().At(0)}}))
	defer consumer.Close()
	read := []*kgo.Record{}
	for len(read) < len(written) {
		fetches := consumer.PollFetches(k.ctx)
		check(fetches.Err(), "poll")
		read = append(read, fetches.Records()...)
	}
	for number, record := range read {
		wanted := written[number]
		expect("offset", record.Offset, int64(number))
		expect("key", fmt.Sprintf("%q %v", record.Key, record.Key == nil), fmt.Sprintf("%q %v", wanted.Key, wanted.Key == nil))
		expect("value", string(record.Value), string(wanted.Value))
		expect("null", record.Value == nil, wanted.Value == nil)
		expect("headers", fmt.Sprint(record.Headers), fmt.Sprint(wanted.Headers))
		expect("timestamp", record.Timestamp.UnixMilli(), at.UnixMilli())
	}
	tooLarge := &kgo.Record{Topic: k.topic, Partition: 1, Value: make([]byte, 3<<20)}
	if producer.ProduceSync(k.ctx, tooLarge).FirstErr() == nil {
		fail("a record of 3 MiB was accepted")
	}
}

// compression writes with every codec and without idempotence and reads everything back.
func compression(k *kit) {
	k.create(1)
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for number, codec := range codecs {
		producer := k.client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(k.topic))
		k.produce(producer, numbered(fmt.Sprintf("codec-%d-", number), 20)...)
		producer.Close()
	}
	for _, acks := range []kgo.Acks{kgo.LeaderAck(), kgo.NoAck()} {
		producer := k.client(kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
		k.produce(producer, "acks")
		producer.Close()
	}
	consumer := k.client(kgo.ConsumeTopics(k.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	expect("records", len(k.read(consumer, 102)), 102)
}

// transactions commits and aborts; a reader of committed records sees the committed ones only.
func transactions(k *kit) {
	k.create(2)
	producer := k.client(kgo.TransactionalID(k.topic))
	defer producer.Close()
	for number, outcome := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		check(producer.BeginTransaction(), "begin")
		k.produce(producer, numbered(fmt.Sprintf("%d-", number), 3)...)
		if number == 1 {
			listed, err := k.admin.ListTransactions(k.ctx, nil, []string{"Ongoing"})
			check(err, "list transactions")
			expect("ongoing transactions", listed.TransactionalIDs(), []string{k.topic})
			described, err := k.admin.DescribeTransactions(k.ctx, k.topic)
			check(err, "describe transactions")
			expect("state", described[k.topic].State, "Ongoing")
			expect("topics of the transaction", described[k.topic].Topics.Topics(), []string{k.topic})
			producers, err := k.admin.DescribeProducers(k.ctx, described[k.topic].Topics)
			check(err, "describe producers")
			active := producers.SortedProducers()
			expect("a producer's epoch", active[0].ProducerEpoch, described[k.topic].ProducerEpoch)
			if active[0].CurrentTxnStartOffset < 0 {
				fail("no start of the transaction: %+v", active[0])
			}
		}
		check(producer.EndTransaction(k.ctx, outcome), "end")
	}
	for isolation, wanted := range map[int]int{0: 9, 1: 6} {
		level := kgo.ReadUncommitted()
		if isolation == 1 {
			level = kgo.ReadCommitted()
		}
		reset := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
		consumer := k.client(kgo.ConsumeTopics(k.topic), kgo.FetchIsolationLevel(level), reset)
		values := k.read(consumer, wanted)
		expect("records", len(values), wanted)
		if isolation == 1 && strings.Contains(fmt.Sprint(values), "1-0") {
			fail("aborted records are read: %v", values)
		}
		consumer.Close()
	}
}

// transactionsInGroups moves records from one topic to another exactly once.
func transactionsInGroups(k *kit) {
	k.create(2)
	output := k.topic + "-output"
	_, err := k.admin.CreateTopic(k.ctx, 1, 1, nil, output)
	check(err, "create output")
	producer := k.client()
	k.produce(producer, numbered("in-", 20)...)
	producer.Close()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(k.servers), kgo.TransactionalID(output), kgo.ConsumerGroup(output), kgo.ConsumeTopics(k.topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err, "session")
	moved := 0
	for moved < 20 {
		fetches := session.PollFetches(k.ctx)
		check(fetches.Err(), "poll")
		check(session.Begin(), "begin")
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(k.ctx, &kgo.Record{Topic: output, Value: record.Value}, nil)
			moved++
		})
		committed, err := session.End(k.ctx, kgo.TryCommit)
		check(err, "end")
		expect("committed", committed, true)
	}
	session.Close()
	lags, err := k.admin.Lag(k.ctx, output)
	check(err, "lag")
	expect("lag", lags[output].Lag.Total(), int64(0))
}
