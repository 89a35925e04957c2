//! The functions that programs call, and their arguments.
//!
//! # What is assumed of pointers
//! 1. A pointer to a text is null, or the text ends in a NUL or has as many bytes as the function needs.
//! 2. A pointer to an array is null, or points to as many elements as the program passes, at an address that is a
//!    multiple
//!    of the element's alignment.
//! 3. A handle or registry is null, or was returned by this library, even if its export was stopped or the registry
//!    freed. A value may be any number: it is compared with the values of the handle.
//!
//! The C library assumes the same, and that no pointer is null and no export stopped.
#![allow(unsafe_code)]

mod arrays;
mod exports;
mod text;
mod updates;
