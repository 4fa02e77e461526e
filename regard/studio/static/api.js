/* The studio's own HTTP API (docs/http.md), with errors that a person can read. */

export class Problem extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    Object.assign(this, { hint, status });
  }
}

/* The token of a service that is not only for this machine; it is forgotten with the tab. */
const token = () => sessionStorage.getItem("token");
export const useToken = text => sessionStorage.setItem("token", text);

/* An address for what a browser fetches by itself, pictures and downloads: it cannot send a header. */
export function signed(path) {
  return token() ? `${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams({ api_key: token() })}` : path;
}

const STOPPED = "The server does not answer.";
const START = "Start it again with: regard studio";

async function sent(path, options) {
  let response;
  try {
    response = await fetch(path, token() ? { ...options, headers: { ...options.headers, Authorization: `Bearer ${token()}` } } : options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(STOPPED, START);
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const body = await response.json().catch(() => ({}));
  const said = body.error ?? {};
  const wait = response.headers.get("Retry-After");
  const hint = said.hint || (wait ? `Try again in ${wait} s.` : "");
  return new Problem(said.message || `The server answered ${response.status} ${response.statusText}.`, hint, response.status);
}

export async function get(path, signal) {
  return (await sent(path, { signal })).json();
}

export async function post(path, body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  return (await sent(path, options)).json();
}

/* A file as it is. */
export async function send(path, file, kind) {
  return (await sent(path, { method: "POST", headers: { "Content-Type": kind }, body: file })).json();
}

export async function remove(path) {
  await sent(path, { method: "DELETE" });
}

/* One attention map: {rows, columns, peak, top, masked, bytes, scale}. A byte b is a weight of b / top of the peak; where some
   cells are masked, those are 255 and top is 254. `scale` is the weight that gets the last colour. */
export async function mapOf(path, signal) {
  const response = await sent(path, { signal });
  const head = name => Number(response.headers.get(name));
  const masked = response.headers.get("X-Masked") !== null;
  const bytes = new Uint8Array(await response.arrayBuffer());
  const map = { rows: head("X-Rows"), columns: head("X-Columns"), peak: head("X-Peak"), top: masked ? 254 : 255, masked, bytes };
  return { ...map, scale: scaleOf(map) };
}

/* The greatest weight of all cells but those that are the only one their query may see, as the first of a causal map: it is
   1 whatever happens, and would leave all others pale. */
function scaleOf({ rows, columns, peak, top, masked, bytes }) {
  if (!masked) return peak || 1;
  let most = 0;
  for (let row = 0; row < rows; row += 1) {
    let seen = 0, greatest = 0;
    for (let i = row * columns; i < (row + 1) * columns; i += 1) {
      if (bytes[i] === 255) continue;
      seen += 1;
      if (bytes[i] > greatest) greatest = bytes[i];
    }
    if (seen > 1 && greatest > most) most = greatest;
  }
  return most ? most / top * peak : peak || 1;
}

/* Server-sent events of a POST: calls `heard(name, data)` for each; ends with the stream. Aborting stops the server too. */
export async function stream(path, body, heard, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await sent(path, options);
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of response.body) {
    const blocks = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) tell(block, heard);
  }
}

function tell(block, heard) {
  const lines = block.split("\n");
  const name = lines.find(line => line.startsWith("event:"))?.slice(6).trim() ?? "message";
  const data = lines.filter(line => line.startsWith("data:")).map(line => line.slice(5)).join("\n");
  if (!data) return;
  const found = JSON.parse(data);
  if (name === "error") throw new Problem(found.error?.message ?? "The stream broke off.", found.error?.hint);
  heard(name, found);
}

/* Runs one request at a time: a newer one aborts the older, whose answer nobody waits for any more. */
export class Latest {
  constructor() {
    this.running = null;
  }

  async run(work) {
    this.stop();
    const mine = new AbortController();
    this.running = mine;
    try {
      const found = await work(mine.signal);
      return this.running === mine ? found : undefined;
    } catch (error) {
      if (error.name === "AbortError" || this.running !== mine) return undefined;
      throw error;
    } finally {
      if (this.running === mine) this.running = null; // what has ended is not aborted any more
    }
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }
}
