'use strict'

// `node scenarios.js FILE SCENARIO HOST:PORT [ARGUMENT ...]` runs one scenario. It ends with 1 where a rule is broken;
// on standard error are the client's own warnings and errors, a line each.

const { Kit } = require('./kit')

async function main([file, name, servers, ...rest]) {
  const kit = await Kit.open(servers, name)
  try {
    await require(`./${file}`)[name](kit, ...rest)
  } finally {
    await kit.close()
  }
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
