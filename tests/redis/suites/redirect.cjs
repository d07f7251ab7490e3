// Connections to the usual port of Redis go to the server under test, whose port is in REDIS_PORT,
// because many suites have no option for it.

const net = require("node:net");

const USUAL_PORT = 6379;
const { connect } = net.Socket.prototype;

net.Socket.prototype.connect = function (...args) {
  for (const options of args.flat()) {
    if (options?.port == USUAL_PORT) {
      Object.assign(options, { host: "127.0.0.1", port: Number(process.env.REDIS_PORT) });
    }
  }
  return connect.apply(this, args);
};
