//! What is deployed, who may call, and which workers are here. Redis only; every key comes from `keys.rs`.
