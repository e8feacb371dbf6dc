// js-libp2p asks for Node.js 22; these two are all that Node.js 20 lacks of it.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new this((accept, refuse) => { resolve = accept; reject = refuse })
  return { promise, resolve, reject }
}
Promise.try ??= function (call, ...args) {
  return new this((resolve) => { resolve(call(...args)) })
}
