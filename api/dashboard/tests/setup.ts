// Before all tests: the stack, filled. After them: gone.
import { seed } from "./seed";
import { Stack } from "./stack";

export default async function setup(): Promise<() => Promise<void>> {
  const stack = new Stack(["--fake-vast", "--workers", "1..4"]);
  const end = async () => { await stack.stop(); stack.remove(); };
  try {
    await stack.start();
    const seeded = await seed(stack);
    const reader = await stack.token("reader", "jobs:read", "endpoints:read", "files:read");
    const canceller = await stack.token("canceller", "jobs:read", "jobs:cancel");
    // The tests run in processes of their own, which have this one's environment.
    process.env["STOKE_TEST_STACK"] = JSON.stringify({ url: stack.api.url, token: stack.api.token, reader, canceller, seeded });
  } catch (error) {
    await end();
    throw error;
  }
  return end;
}
