'use strict'

// What kafkajs' admin asks for, and the errors that its users tell apart.

const assert = require('node:assert/strict')
const { ConfigResourceTypes } = require('kafkajs')
const { until } = require('./kit')

const TOPIC = ConfigResourceTypes.TOPIC

async function topicsAreMadeDescribedGrownAndDeleted(kit) {
  const topic = `${kit.name}-made`
  const topics = [{ topic, numPartitions: 3, replicationFactor: 1 }]
  assert.equal(await kit.admin.createTopics({ topics, validateOnly: true, waitForLeaders: false }), true)
  assert.ok(!(await kit.admin.listTopics()).includes(topic), 'it was only validated')
  assert.equal(await kit.admin.createTopics({ topics, waitForLeaders: true }), true)
  assert.equal(await kit.admin.createTopics({ topics }), false, 'it is there already')
  await kit.admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  const described = await kit.admin.fetchTopicMetadata({ topics: [topic] })
  assert.equal(described.topics[0].partitions.length, 5)
  const cluster = await kit.admin.describeCluster()
  assert.equal(cluster.brokers.length, 1)
  assert.equal(cluster.controller, cluster.brokers[0].nodeId)
  assert.equal(described.topics[0].partitions[0].leader, cluster.controller)
  await kit.admin.deleteTopics({ topics: [topic] })
  assert.ok(!(await kit.admin.listTopics()).includes(topic), 'it is deleted')
  await assert.rejects(kit.admin.createTopics({ topics: [{ topic: 'no spaces' }] }), (error) => {
    assert.equal(error.errors[0].type, 'INVALID_TOPIC_EXCEPTION')
    return true
  })
}

async function settingsAreDescribedAndReplaced(kit) {
  const topic = await kit.topic('set', 1, { 'retention.ms': '60000' })
  const resources = [{ type: TOPIC, name: topic }]
  const value = async (name) => {
    const described = await kit.admin.describeConfigs({ resources: [{ ...resources[0], configNames: [name] }] })
    assert.equal(described.resources[0].configEntries.length, 1)
    return described.resources[0].configEntries[0].configValue
  }
  assert.equal(await value('retention.ms'), '60000')
  const configEntries = [{ name: 'cleanup.policy', value: 'compact' }]
  await kit.admin.alterConfigs({ resources: [{ type: TOPIC, name: topic, configEntries }] })
  assert.equal(await value('cleanup.policy'), 'compact')
  assert.notEqual(await value('retention.ms'), '60000', 'the old call replaces all settings')
  const wrong = [{ name: 'cleanup.policy', value: 'sometimes' }]
  await assert.rejects(kit.admin.alterConfigs({ resources: [{ type: TOPIC, name: topic, configEntries: wrong }] }), {
    type: 'INVALID_CONFIG',
  })
}

async function recordsAreDeletedUpToAnOffset(kit) {
  const topic = await kit.topic('trimmed')
  const producer = await kit.producer()
  await producer.send({ topic, messages: Array.from({ length: 10 }, (_, i) => ({ value: `value${i}` })) })
  // The client finds a leader only once it has asked about the topic.
  await kit.admin.fetchTopicOffsets(topic)
  await kit.admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
  const [offsets] = await kit.admin.fetchTopicOffsets(topic)
  assert.deepEqual(offsets, { partition: 0, offset: '10', high: '10', low: '4' })
  assert.equal((await kit.read(topic, 6))[0].value.toString(), 'value4')
}

async function groupsAreListedDescribedChangedAndDeleted(kit) {
  const topic = await kit.topic('grouped', 2)
  const producer = await kit.producer()
  await producer.send({ topic, messages: Array.from({ length: 10 }, () => ({ partition: 0, value: 'value' })) })
  const groupId = kit.name
  const consumer = await kit.consumer({ groupId })
  let read = 0
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage: async () => void (read += 1) })
  await until('all are read', () => read === 10)

  const listed = (await kit.admin.listGroups()).groups.find((group) => group.groupId === groupId)
  assert.deepEqual(listed, { groupId, protocolType: 'consumer' })
  const [described] = (await kit.admin.describeGroups([groupId])).groups
  assert.equal(described.state, 'Stable')
  assert.equal(described.protocol, 'RoundRobinAssigner')
  assert.equal(described.members.length, 1)
  assert.equal(described.members[0].clientId, kit.name)
  await assert.rejects(kit.admin.deleteGroups([groupId]), (error) => {
    assert.equal(error.groups[0].error.type, 'NON_EMPTY_GROUP')
    return true
  })
  await consumer.disconnect()

  await kit.admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '7' }] })
  const [{ partitions }] = await kit.admin.fetchOffsets({ groupId, topics: [topic] })
  const offsets = new Map(partitions.map(({ partition, offset }) => [partition, offset]))
  assert.deepEqual(offsets, new Map([[0, '7'], [1, '-1']]))
  await kit.admin.deleteGroups([groupId])
  const [gone] = (await kit.admin.describeGroups([groupId])).groups
  assert.equal(gone.state, 'Dead')
  assert.ok(!(await kit.admin.listGroups()).groups.some((group) => group.groupId === groupId), 'it is deleted')
}

module.exports = {
  groupsAreListedDescribedChangedAndDeleted,
  recordsAreDeletedUpToAnOffset,
  settingsAreDescribedAndReplaced,
  topicsAreMadeDescribedGrownAndDeleted,
}
