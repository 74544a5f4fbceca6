'use strict'

// Consumers that share the partitions of a topic.

const assert = require('node:assert/strict')
const { fork } = require('node:child_process')
const path = require('node:path')
const { PartitionAssigners } = require('kafkajs')
const { until } = require('./kit')

const PARTITIONS = 6

// A consumer with the partitions that it has by now, and with what it has read.
async function join(kit, topic, options = {}) {
  const member = { partitions: [], values: [] }
  member.consumer = await kit.consumer(options)
  member.consumer.on(member.consumer.events.GROUP_JOIN, ({ payload }) => {
    member.partitions = payload.memberAssignment[topic] ?? []
  })
  await member.consumer.subscribe({ topics: [topic], fromBeginning: true })
  await member.consumer.run({
    autoCommitInterval: 50,
    eachMessage: async ({ message }) => void member.values.push(message.value.toString()),
  })
  return member
}

async function balanced(members, others = 0) {
  const share = PARTITIONS / (members.length + others)
  await until(`${members.length} members with ${share} partitions each`, () => {
    const all = new Set(members.flatMap((member) => member.partitions))
    return members.every((member) => member.partitions.length === share) && all.size === share * members.length
  })
}

async function send(kit, topic, prefix) {
  const producer = await kit.producer()
  const messages = Array.from({ length: 60 }, (_, i) => ({ partition: i % PARTITIONS, value: `${prefix} ${i}` }))
  await producer.send({ topic, messages })
}

function read(members, prefix) {
  return new Set(members.flatMap((member) => member.values).filter((value) => value.startsWith(prefix))).size
}

async function partitionsFollowMembersThatJoinLeaveAndDie(kit) {
  const topic = await kit.topic('shared', PARTITIONS)
  const members = [await join(kit, topic)]
  await balanced(members)
  members.push(await join(kit, topic))
  await balanced(members)
  await send(kit, topic, 'first')
  await until('two read all', () => read(members, 'first') === 60)

  const mortal = fork(path.join(__dirname, 'scenarios.js'), ['groups', 'belongToAGroup', kit.servers, kit.name, topic])
  try {
    await balanced(members, 1)
  } finally {
    mortal.kill('SIGKILL')
  }
  await balanced(members)
  await send(kit, topic, 'second')
  await until('two read all again', () => read(members, 'second') === 60)

  await members.shift().consumer.disconnect()
  await balanced(members)
  await send(kit, topic, 'third')
  await until('one reads all', () => read(members, 'third') === 60)
}

// The part of the one that dies: it never ends on its own, except with the process that started it.
async function belongToAGroup(kit, group, topic) {
  await join(kit, topic, { groupId: group })
  await new Promise((resolve) => process.on('disconnect', resolve))
}

async function membersWithDifferentAssignersAreRefused(kit) {
  const topic = await kit.topic('assigners', PARTITIONS)
  await balanced([await join(kit, topic)])
  const other = (options) => {
    const assigner = PartitionAssigners.roundRobin(options)
    return { ...assigner, name: 'Other', protocol: (topics) => ({ ...assigner.protocol(topics), name: 'Other' }) }
  }
  const stranger = await kit.consumer({ partitionAssigners: [other], retry: { retries: 0 } })
  const crashed = new Promise((resolve) => stranger.on(stranger.events.CRASH, ({ payload }) => resolve(payload.error)))
  await stranger.subscribe({ topics: [topic] })
  await stranger.run({ eachMessage: async () => {} })
  const error = await crashed
  assert.equal(error.type ?? error.cause.type, 'INCONSISTENT_GROUP_PROTOCOL')
}

// The first part of two: the broker is restarted before the second.
async function halfIsReadAndCommitted(kit) {
  const topic = await kit.topic('committed')
  const producer = await kit.producer()
  await producer.send({ topic, messages: Array.from({ length: 10 }, (_, i) => ({ value: `value${i}` })) })
  const consumer = await kit.consumer({ groupId: 'survivors' })
  let read = 0
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage: async () => void (read += 1) })
  await until('all are read', () => read === 10)
  await consumer.commitOffsets([{ topic, partition: 0, offset: '5', metadata: 'half of it' }])
}

async function theOtherHalfIsReadAfterwards(kit) {
  const topic = 'kafkajs-halfIsReadAndCommitted-committed'
  const [committed] = await kit.admin.fetchOffsets({ groupId: 'survivors', topics: [topic] })
  assert.deepEqual(committed.partitions, [{ partition: 0, offset: '5', metadata: 'half of it' }])
  const values = (await kit.read(topic, 5, { groupId: 'survivors' })).map((message) => message.value.toString())
  assert.deepEqual(values, ['value5', 'value6', 'value7', 'value8', 'value9'])
}

module.exports = {
  belongToAGroup,
  halfIsReadAndCommitted,
  membersWithDifferentAssignersAreRefused,
  partitionsFollowMembersThatJoinLeaveAndDie,
  theOtherHalfIsReadAfterwards,
}
