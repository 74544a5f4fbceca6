'use strict'

// Producing and consuming.

const assert = require('node:assert/strict')
const { CompressionTypes } = require('kafkajs')
const { until } = require('./kit')

const COUNT = 200

async function everyCodecComesBackAsItWasSent(kit) {
  for (const [codec, compression] of Object.entries(CompressionTypes)) {
    const topic = await kit.topic(codec)
    const producer = await kit.producer()
    const sent = Array.from({ length: COUNT }, (_, i) => ({
      key: i % 3 === 0 ? null : `key${i}`,
      value: `value${i} of ${codec}`.repeat(10),
      headers: { number: `${i}`, several: ['one', 'two'] },
      timestamp: `${1_000_000 + i}`,
    }))
    for (let i = 0; i < COUNT; i += 50) {
      const [told] = await producer.send({ topic, compression, messages: sent.slice(i, i + 50) })
      assert.equal(told.baseOffset, `${i}`)
    }
    const read = await kit.read(topic, COUNT)
    assert.deepEqual(
      read.map((message) => ({
        offset: message.offset,
        key: message.key === null ? null : message.key.toString(),
        value: message.value.toString(),
        headers: {
          number: message.headers.number.toString(),
          several: message.headers.several.map((one) => one.toString()),
        },
        timestamp: message.timestamp,
      })),
      sent.map((message, i) => ({ offset: `${i}`, ...message })),
    )
  }
}

async function everyLevelOfAcknowledgementArrives(kit) {
  const topic = await kit.topic('acks')
  const producer = await kit.producer()
  for (const acks of [0, 1, -1]) {
    await producer.send({ topic, acks, messages: Array.from({ length: 10 }, (_, i) => ({ value: `${acks} ${i}` })) })
  }
  assert.equal((await kit.read(topic, 30)).length, 30)
}

async function tombstonesAndEmptyValuesAreNotTheSame(kit) {
  const topic = await kit.topic('tombstones')
  const producer = await kit.producer()
  await producer.send({ topic, messages: [{ key: 'key', value: '' }, { key: 'key', value: null }] })
  const [empty, tombstone] = await kit.read(topic, 2)
  assert.equal(empty.value.length, 0)
  assert.equal(tombstone.value, null)
}

async function largeMessagesPassWhereTheTopicAllowsThem(kit) {
  const topic = await kit.topic('large', 1, { 'max.message.bytes': '4000000' })
  const producer = await kit.producer()
  const large = 'x'.repeat(3_000_000)
  await producer.send({ topic, messages: [{ value: 'small' }] })
  await producer.send({ topic, messages: [{ value: large }] })
  const read = await kit.read(topic, 2, { maxBytesPerPartition: 1000, maxBytes: 1000 })
  assert.ok(read[1].value.toString() === large)
  await assert.rejects(producer.send({ topic, messages: [{ value: large.repeat(2) }] }), { type: 'MESSAGE_TOO_LARGE' })
}

async function offsetsAreFoundByTime(kit) {
  const topic = await kit.topic('times')
  const producer = await kit.producer()
  for (let i = 0; i < 10; i += 1) {
    await producer.send({ topic, messages: [{ value: `value${i}`, timestamp: `${1000 * (i + 1)}` }] })
  }
  const [found] = await kit.admin.fetchTopicOffsetsByTimestamp(topic, 4500)
  assert.deepEqual(found, { partition: 0, offset: '4' })
  const [late] = await kit.admin.fetchTopicOffsetsByTimestamp(topic, 10_001)
  assert.equal(late.offset, '10')
  const consumer = await kit.consumer()
  const values = []
  await consumer.subscribe({ topics: [topic] })
  await consumer.run({ eachMessage: async ({ message }) => void values.push(message.value.toString()) })
  consumer.seek({ topic, partition: 0, offset: found.offset })
  await until('the messages from there on', () => values.includes('value9'))
  assert.deepEqual(values, ['value4', 'value5', 'value6', 'value7', 'value8', 'value9'])
}

async function aConsumerStopsWhereItIsPausedAndGoesOn(kit) {
  const topic = await kit.topic('paused')
  const producer = await kit.producer()
  const consumer = await kit.consumer()
  const values = []
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, pause }) => {
      for (const message of batch.messages) {
        values.push(message.value.toString())
        resolveOffset(message.offset)
        if (message.value.toString() === 'pause') {
          pause()
          return
        }
        await heartbeat()
      }
    },
  })
  await producer.send({ topic, messages: ['one', 'pause', 'two'].map((value) => ({ value })) })
  await until('the pause', () => values.length === 2)
  consumer.resume([{ topic }])
  await until('the rest', () => values.length === 3)
  assert.deepEqual(values, ['one', 'pause', 'two'])
}

async function whatIsNotThereIsRefused(kit) {
  const producer = await kit.producer({ retry: { retries: 0 } })
  await assert.rejects(producer.send({ topic: `${kit.name}-absent`, messages: [{ value: 'x' }] }), (error) => {
    assert.equal(error.cause.type, 'UNKNOWN_TOPIC_OR_PARTITION')
    return true
  })
}

// Run while the connections are cut: what is sent again must not count twice.
async function idempotentMessagesAreWrittenOnceThroughCuts(kit) {
  const topic = await kit.topic('once', 3)
  const retry = { initialRetryTime: 5, maxRetryTime: 50, retries: Number.MAX_SAFE_INTEGER }
  const producer = await kit.producer({ idempotent: true, maxInFlightRequests: 1, retry })
  const count = 150
  for (let i = 0; i < count; i += 1) {
    const messages = [0, 1, 2].map((partition) => ({ partition, value: `${i} of ${partition}`.padEnd(100, '.') }))
    await producer.send({ topic, messages, acks: -1 })
  }
  for (const { partition, offset } of await kit.admin.fetchTopicOffsets(topic)) {
    assert.equal(offset, `${count}`, `messages of partition ${partition}`)
  }
  const values = (await kit.read(topic, 3 * count)).map((message) => message.value.toString())
  for (const partition of [0, 1, 2]) {
    const expected = Array.from({ length: count }, (_, i) => `${i} of ${partition}`.padEnd(100, '.'))
    assert.deepEqual(values.filter((value) => value.includes(` of ${partition}`)), expected)
  }
}

module.exports = {
  aConsumerStopsWhereItIsPausedAndGoesOn,
  everyCodecComesBackAsItWasSent,
  everyLevelOfAcknowledgementArrives,
  idempotentMessagesAreWrittenOnceThroughCuts,
  largeMessagesPassWhereTheTopicAllowsThem,
  offsetsAreFoundByTime,
  tombstonesAndEmptyValuesAreNotTheSame,
  whatIsNotThereIsRefused,
}
