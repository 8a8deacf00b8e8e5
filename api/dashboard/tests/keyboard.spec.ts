import { expect, live, test, VIEWS } from "./fixtures";

test("every view is a key away, and the list of keys is too", async ({ inside, at }) => {
  await inside.goto(at(""));
  await live(inside);
  for (const view of VIEWS) {
    await inside.keyboard.press("g");
    await inside.keyboard.press(view[0] as string);
    await expect(inside).toHaveURL(at(`/${view}`));
    await expect(inside.getByRole("heading", { level: 1 })).toHaveText(view[0]?.toUpperCase() + view.slice(1));
  }
  await inside.keyboard.press("?");
  const keys = inside.getByRole("dialog", { name: "Keys" });
  await expect(keys).toBeVisible();
  // Nothing is gone to from behind a dialog.
  await inside.keyboard.press("g");
  await inside.keyboard.press("q");
  await expect(inside).toHaveURL(at("/storage"));
  await inside.keyboard.press("Escape");
  await expect(keys).toBeHidden();
});

test("a slash finds a job by its id and jobs by a label, from any view", async ({ inside, at, stack }) => {
  await inside.goto(at("/costs"));
  await live(inside);
  await inside.keyboard.press("/");
  const find = inside.getByRole("searchbox");
  await expect(find).toBeFocused();
  await find.fill(stack.seeded.torn);
  await find.press("Enter");
  await expect(inside).toHaveURL(at(`/jobs/${stack.seeded.torn}`));
  await inside.keyboard.press("/");
  await expect(find).toBeFocused();
  await find.fill("project=calendar");
  await find.press("Enter");
  await expect(inside.getByRole("button", { name: "Remove the filter metadata.project" })).toBeVisible();
  await expect(inside.getByRole("listitem").filter({ hasText: stack.seeded.picture })).toBeVisible();
  await expect(inside.getByRole("listitem").filter({ hasText: stack.seeded.text })).toHaveCount(0);
});

test("the first key leads past the menu", async ({ inside, at }) => {
  await inside.goto(at("/endpoints"));
  await live(inside);
  // Until the rows are there, nothing in the view takes the focus.
  await expect(inside.getByRole("main").getByRole("link").first()).toBeVisible();
  await inside.keyboard.press("Tab");
  const skip = inside.getByRole("link", { name: "Skip to the content" });
  await expect(skip).toBeFocused();
  await expect(skip).toBeInViewport();
  await inside.keyboard.press("Enter");
  await expect(inside.locator("main")).toBeFocused();
  await inside.keyboard.press("Tab");
  await expect(inside.locator("main :focus")).toHaveCount(1);
});
