// Signs one payload per line of standard input, as GitHub does: a JSON string in, a signature out, in order.
import { createInterface } from "node:readline";
import { sign } from "@octokit/webhooks-methods";

const secret = process.argv[2];
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write((await sign(secret, JSON.parse(line))) + "\n");
}
