'use strict'

// What the scenarios share: clients of one broker, topics of their own, and ways to wait.

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const zstd = require('@bokuweb/zstd-wasm')

const DEADLINE_MS = 15_000

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

class Kit {
  constructor(servers, name, complain) {
    this.servers = servers
    // Starts the names of all that a scenario makes, so that scenarios do not meet.
    this.name = name
    this.clients = []
    this.kafka = new Kafka({
      clientId: name,
      brokers: [servers],
      logLevel: logLevel.WARN,
      // The test checks the warnings and errors that the client logs.
      logCreator: () => ({ label, log }) => complain(label, log.message, JSON.stringify(log)),
      retry: { initialRetryTime: 20, maxRetryTime: 200, retries: 30 },
    })
  }

  static async open(servers, name, complain) {
    await zstd.init()
    const kit = new Kit(servers, `kafkajs-${name}`, complain)
    kit.admin = await kit.connected(kit.kafka.admin())
    return kit
  }

  producer(options = {}) {
    return this.connected(this.kafka.producer({ allowAutoTopicCreation: false, ...options }))
  }

  consumer(options = {}) {
    return this.connected(
      this.kafka.consumer({
        groupId: this.name,
        heartbeatInterval: 100,
        sessionTimeout: 2000,
        rebalanceTimeout: 5000,
        maxWaitTimeInMs: 50,
        ...options,
      }),
    )
  }

  async topic(suffix, numPartitions = 1, settings = {}) {
    const topic = `${this.name}-${suffix}`
    const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
    await this.admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] })
    return topic
  }

  // The first `count` messages of a topic from its beginning, in the order of their offsets.
  async read(topic, count, options = {}) {
    const consumer = await this.consumer({ groupId: `${this.name}-${topic}`, ...options })
    const messages = []
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => void messages.push(message) })
    await until(`${count} messages of ${topic}, not ${messages.length}`, () => messages.length >= count)
    await consumer.disconnect()
    return messages
  }

  async connected(client) {
    this.clients.push(client)
    await client.connect()
    return client
  }

  async close() {
    await Promise.all(this.clients.map((client) => client.disconnect()))
  }
}

async function until(what, isSo) {
  const end = Date.now() + DEADLINE_MS
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`not in time: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

module.exports = { Kit, until }
