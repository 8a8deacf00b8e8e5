//! The proof that no job is lost and none is done twice: `chaos` runs the product as real processes, breaks them, and judges what
//! independent witnesses wrote down.

pub mod proxy;
