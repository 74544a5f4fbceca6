package main

import (
	"context"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groups has two members that share the partitions, and administers the group, as `rpk group` does.
func groups(k *kit) { groupOf(k, false) }

// newerGroups does the same with members that use the protocol of KIP-848 if the broker has it.
func newerGroups(k *kit) { groupOf(k, true) }

func groupOf(k *kit, isNew bool) {
	k.create(4)
	group := k.topic
	producer := k.client()
	defer producer.Close()
	k.produce(producer, numbered("a-", 40)...)
	member := func() *kgo.Client {
		options := []kgo.Opt{
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(k.topic), kgo.Balancers(kgo.RangeBalancer()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		}
		if isNew {
			options = append(options, kgo.ServerSideBalancer())
		}
		return k.client(options...)
	}
	first := member()
	expect("records", len(k.read(first, 40)), 40)
	check(first.CommitUncommittedOffsets(k.ctx), "commit")
	second := member()
	// A member takes part in rebalances while it polls.
	polling, stop := context.WithCancel(k.ctx)
	for _, client := range []*kgo.Client{first, second} {
		go func() {
			for polling.Err() == nil {
				client.PollFetches(polling)
			}
		}()
	}
	k.await("two members with two partitions each", func() bool {
		state, members, partitions := k.describe(group)
		return state == "Stable" && members == 2 && partitions == 4
	})
	listed, err := k.admin.ListGroups(k.ctx)
	check(err, "list groups")
	if !contains(listed.Groups(), group) {
		fail("the group is not listed: %v", listed)
	}
	lags, err := k.admin.Lag(k.ctx, group)
	check(err, "lag")
	expect("lag", lags[group].Lag.Total(), int64(0))
	deleted, err := k.admin.DeleteGroups(k.ctx, group)
	check(err, "delete groups")
	expectError("deletion of a group with members", deleted[group].Err, kerr.NonEmptyGroup)
	stop()
	first.Close()
	second.Close()
	k.await("no member", func() bool {
		state, _, _ := k.describe(group)
		return state == "Empty"
	})
	seek(k, group)
}

// describe returns a group's state and the numbers of its members and of the partitions that these have.
func (k *kit) describe(name string) (state string, members, partitions int) {
	groups, err := k.admin.DescribeGroups(k.ctx, name)
	check(err, "describe group")
	group := groups[name]
	check(group.Err, "describe group")
	for _, member := range group.Members {
		if consumer, is := member.Assigned.AsConsumer(); is {
			for _, topic := range consumer.Topics {
				partitions += len(topic.Partitions)
			}
		}
	}
	return group.State, len(group.Members), partitions
}

// seek moves and deletes the offsets of an empty group, and deletes the group.
func seek(k *kit, group string) {
	starts, err := k.admin.ListStartOffsets(k.ctx, k.topic)
	check(err, "start offsets")
	check(k.admin.CommitAllOffsets(k.ctx, group, starts.Offsets()), "commit start offsets")
	lags, err := k.admin.Lag(k.ctx, group)
	check(err, "lag")
	expect("lag after seek", lags[group].Lag.Total(), int64(40))
	chosen := kadm.TopicsSet{}
	chosen.Add(k.topic, 0, 1)
	deleted, err := k.admin.DeleteOffsets(k.ctx, group, chosen)
	check(err, "delete offsets")
	check(deleted.Error(), "delete offsets")
	fetched, err := k.admin.FetchOffsets(k.ctx, group)
	check(err, "fetch offsets")
	left := []int{}
	for partition := range fetched[k.topic] {
		left = append(left, int(partition))
	}
	sort.Ints(left)
	expect("partitions with offsets", left, []int{2, 3})
	groups, err := k.admin.DeleteGroups(k.ctx, group)
	check(err, "delete group")
	check(groups.Error(), "delete group")
	groups, err = k.admin.DeleteGroups(k.ctx, group)
	check(err, "delete group again")
	expectError("deletion of an unknown group", groups[group].Err, kerr.GroupIDNotFound)
}

// await polls a condition until the scenario's time limit.
func (k *kit) await(what string, condition func() bool) {
	for !condition() {
		select {
		case <-k.ctx.Done():
			fail("timed out waiting for %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func contains(names []string, wanted string) bool {
	for _, name := range names {
		if name == wanted {
			return true
		}
	}
	return false
}
