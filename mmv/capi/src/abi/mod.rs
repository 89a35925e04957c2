//! The functions that programs call, and their arguments.
//!
//! # What is assumed of pointers
//! 1. A pointer to a text is null, or the text ends in a NUL or has as many bytes as the function needs.
//! 2. A pointer to an array is null, or points to as many elements as the program passes, at an address that is a
//!    multiple
//!    of the element's alignment.
//! 3. A handle, registry or value may be any number: it is looked up, never dereferenced.
//!
//! The C library assumes the same of texts and arrays, and that no pointer is null; it dereferences handles, registries
//! and values.
#![allow(unsafe_code)]

mod arrays;
mod exports;
mod text;
mod updates;
