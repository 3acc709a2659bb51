// The address of a store as Python writes it → what ioredis wants.

const SENTINEL = "redis+sentinel:";
const CLUSTER = "redis+cluster:";

// `single`: options for one client; `cluster`: the nodes to start from.
export function read(address) {
  const url = address.replace(/^redis\+(sentinel|cluster):/, "http:").split("/");
  const hosts = (url[2] ?? "").split(",").map(endpoint);
  if (address.startsWith(CLUSTER)) return { cluster: hosts };
  if (address.startsWith(SENTINEL)) return { single: { sentinels: hosts, name: url[3], db: Number(url[4] ?? 0) } };
  if (address.startsWith("unix:")) return { single: { path: address.slice("unix://".length) } };
  return { single: server(new URL(address)) };
}

function endpoint(text) {
  const [host, port] = text.split(":");
  return { host, port: Number(port) };
}

function server(url) {
  const options = { host: url.hostname, port: Number(url.port), db: Number(url.pathname.slice(1) || 0) };
  if (url.username) options.username = decodeURIComponent(url.username);
  if (url.password) options.password = decodeURIComponent(url.password);
  // The certificate authority is the test run's own.
  if (url.protocol === "rediss:") options.tls = { rejectUnauthorized: false };
  return options;
}
