'use strict'

// Transactions, of which kafkajs speaks the first version.

const assert = require('node:assert/strict')

function transactional(kit) {
  // Fewer retries make it warn that they may break what it promises.
  const retry = { initialRetryTime: 5, maxRetryTime: 50, retries: Number.MAX_SAFE_INTEGER }
  return kit.producer({ transactionalId: kit.name, idempotent: true, maxInFlightRequests: 1, retry })
}

// kafkajs reads what is committed unless it is told otherwise.
async function values(kit, topic, count, options = {}) {
  const groupId = `${kit.name}-${topic}-${options.readUncommitted}`
  return (await kit.read(topic, count, { groupId, ...options })).map((message) => message.value.toString())
}

async function whatIsCommittedIsSeenAndWhatIsAbortedIsNot(kit) {
  const topic = await kit.topic('seen')
  const producer = await transactional(kit)
  for (let i = 0; i < 6; i += 1) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: `${i}` }, { value: `${i} again` }] })
    if (i % 3 === 1) await transaction.abort()
    else await transaction.commit()
  }
  await producer.disconnect()
  const last = await kit.producer()
  await last.send({ topic, messages: [{ value: 'last' }] })
  const committed = ['0', '0 again', '2', '2 again', '3', '3 again', '5', '5 again', 'last']
  assert.deepEqual(await values(kit, topic, 9), committed)
  assert.equal((await values(kit, topic, 13, { readUncommitted: true })).length, 13)
}

async function offsetsAreCommittedWithTheirTransaction(kit) {
  const topic = await kit.topic('offsets')
  const producer = await transactional(kit)
  const groupId = `${kit.name}-group`
  const offset = async () => {
    const [found] = await kit.admin.fetchOffsets({ groupId, topics: [topic] })
    return found.partitions[0].offset
  }
  for (const [wanted, isCommit, expected] of [['5', false, '-1'], ['7', true, '7'], ['9', false, '7']]) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: wanted }] })
    const topics = [{ topic, partitions: [{ partition: 0, offset: wanted }] }]
    await transaction.sendOffsets({ consumerGroupId: groupId, topics })
    if (isCommit) await transaction.commit()
    else await transaction.abort()
    assert.equal(await offset(), expected)
  }
}

async function aZombieIsFenced(kit) {
  const topic = await kit.topic('zombies')
  const zombie = await transactional(kit)
  const old = await zombie.transaction()
  await old.send({ topic, messages: [{ value: 'of a zombie' }] })
  const producer = await transactional(kit)
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: [{ value: 'good' }] })
  await assert.rejects(old.commit(), (error) => {
    assert.match(error.type ?? error.cause.type, /PRODUCER_FENCED|INVALID_PRODUCER_EPOCH/)
    return true
  })
  await transaction.commit()
  assert.deepEqual(await values(kit, topic, 1), ['good'])
}

module.exports = {
  aZombieIsFenced,
  offsetsAreCommittedWithTheirTransaction,
  whatIsCommittedIsSeenAndWhatIsAbortedIsNot,
}
