// Follows a job and prints each event as a line of JSON. Arguments: the built module, the job's id.
import { pathToFileURL } from "node:url";

const { Stokehold } = await import(pathToFileURL(process.argv[2]).href);
const client = new Stokehold({ baseUrl: process.env.STOKE_URL, token: process.env.STOKE_TOKEN });
for await (const event of client.events(process.argv[3])) console.log(JSON.stringify(event));
