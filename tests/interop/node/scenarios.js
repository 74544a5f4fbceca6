'use strict'

// `node scenarios.js` runs scenarios one after the other, because kafkajs takes longer to load than most of them run.
// A request is a line of JSON on standard input, [FILE, SCENARIO, HOST:PORT]; its answer is a line of JSON on standard
// output, {code, said}: code is 1 where a rule is broken, said has the client's own warnings and errors, a line each.
//
// `node scenarios.js FILE SCENARIO HOST:PORT [ARGUMENT ...]` runs one, for a scenario that needs a second process.

const readline = require('node:readline')
const { format } = require('node:util')
const { Kit } = require('./kit')

async function run([file, name, servers, ...rest], complain) {
  const kit = await Kit.open(servers, name, complain)
  try {
    await require(`./${file}`)[name](kit, ...rest)
  } finally {
    await kit.close()
  }
}

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const said = []
    const complain = (...words) => void said.push(format(...words))
    let code = 0
    try {
      await run(JSON.parse(line), complain)
    } catch (error) {
      code = 1
      complain(error)
    }
    process.stdout.write(`${JSON.stringify({ code, said: said.join('\n') })}\n`)
  }
}

const words = process.argv.slice(2)
const ended = words.length > 0 ? run(words, console.error) : serve()
ended.then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
