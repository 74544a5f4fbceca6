'use strict'

// `node security.js` runs round trips: a request is a line of JSON on standard input, {topic, options}; its answer is a
// line of JSON on standard output: {value} of the record that was written and read, or {error}, its class and text.

const { readFileSync } = require('node:fs')
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const DEADLINE_MS = 15_000

function kafka({ servers, ca, certificate, key, mechanism, user, password, token }) {
  const options = { brokers: [servers], logLevel: logLevel.NOTHING, retry: { retries: 1, initialRetryTime: 20 } }
  if (ca) options.ssl = { ca: [readFileSync(ca)] }
  if (certificate) Object.assign(options.ssl, { cert: readFileSync(certificate), key: readFileSync(key) })
  if (mechanism === 'oauthbearer') {
    options.sasl = { mechanism, oauthBearerProvider: async () => ({ value: token }) }
  } else if (mechanism) {
    options.sasl = { mechanism, username: user, password }
  }
  return new Kafka(options)
}

async function roundTrip({ topic, options }) {
  const client = kafka(options)
  const producer = client.producer({ allowAutoTopicCreation: false })
  await producer.connect()
  try {
    await producer.send({ topic, messages: [{ value: 'secret' }] })
  } finally {
    await producer.disconnect()
  }
  const consumer = client.consumer({ groupId: topic, maxWaitTimeInMs: 50 })
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    return await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error('no record in time')), DEADLINE_MS).unref()
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
}

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer
    try {
      answer = { value: await roundTrip(JSON.parse(line)) }
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}` }
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
}

serve().then(() => process.exit(0))
