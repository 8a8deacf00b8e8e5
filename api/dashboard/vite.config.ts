import { defineConfig } from "vite";

// `npm run dev` beside a running stack: STOKE_URL says where it listens.
const stack = process.env["STOKE_URL"] ?? "http://127.0.0.1:7070";

export default defineConfig({
  base: "/dashboard/",
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { "/v1": stack } },
});
