// Scenarios of franz-go, the client library of rpk and Redpanda Console, and of kadm, with which they administer.
//
// A process runs one scenario: scenarios NAME SERVERS. It ends with 1 and the reason if an expectation is not met.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const scenarioSecondsMax = 40

var scenarios = map[string]func(*kit){
	"records":               records,
	"compression":           compression,
	"groups":                groups,
	"newerGroups":           newerGroups,
	"offsets":               offsets,
	"topics":                topics,
	"settings":              settings,
	"transactions":          transactions,
	"transactionsInGroups":  transactionsInGroups,
	"cluster":               cluster,
	"quotas":                quotas,
	"security":              security,
	"withoutAuthentication": withoutAuthentication,
}

// kit has what scenarios share: the context with the time limit, the broker's address and an admin client.
type kit struct {
	ctx     context.Context
	servers string
	topic   string
	admin   *kadm.Client
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "list" {
		names := []string{}
		for name := range scenarios {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			fmt.Println(name)
		}
		return
	}
	name := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), scenarioSecondsMax*time.Second)
	defer cancel()
	k := &kit{ctx: ctx, servers: os.Args[2], topic: fmt.Sprintf("franz-%s", name)}
	k.admin = kadm.NewClient(k.client())
	defer k.admin.Close()
	scenarios[name](k)
}

// client returns a client with the given options, which logs in as LOGIN_USER with LOGIN_PASSWORD if there is one.
func (k *kit) client(options ...kgo.Opt) *kgo.Client {
	return k.clientOf(os.Getenv("LOGIN_USER"), os.Getenv("LOGIN_PASSWORD"), options...)
}

// clientOf returns a client that logs in with SCRAM, or not if there is no user.
func (k *kit) clientOf(user, password string, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(k.servers))
	if user != "" {
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	}
	client, err := kgo.NewClient(options...)
	check(err, "new client")
	return client
}

// create creates the scenario's topic.
func (k *kit) create(partitions int32) {
	_, err := k.admin.CreateTopic(k.ctx, partitions, 1, nil, k.topic)
	check(err, "create topic")
}

// produce writes values with keys, and returns when all are acknowledged.
func (k *kit) produce(client *kgo.Client, values ...string) {
	for _, value := range values {
		record := &kgo.Record{Topic: k.topic, Key: []byte("key-" + value), Value: []byte(value)}
		check(client.ProduceSync(k.ctx, record).FirstErr(), "produce "+value)
	}
}

// read polls until `count` records have come, and returns their values in sorted order.
func (k *kit) read(client *kgo.Client, count int) []string {
	values := []string{}
	for len(values) < count {
		fetches := client.PollFetches(k.ctx)
		for _, failed := range fetches.Errors() {
			check(failed.Err, "poll "+failed.Topic)
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	sort.Strings(values)
	return values
}

func numbered(prefix string, count int) []string {
	values := []string{}
	for number := range count {
		values = append(values, fmt.Sprintf("%s%04d", prefix, number))
	}
	return values
}

func check(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func expect[T any](what string, got, wanted T) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		fail("%s: got %v, wanted %v", what, got, wanted)
	}
}

func expectError(what string, got, wanted error) {
	if got == nil || got.Error() != wanted.Error() {
		fail("%s: got %v, wanted %v", what, got, wanted)
	}
}

func fail(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
	os.Exit(1)
}
