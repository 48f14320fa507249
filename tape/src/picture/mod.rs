//! A timeline as a picture: lanes of sessions, the dispatcher and workers, from left to right in time.
//!
//! [`scene`] lays it out as shapes, [`svg`] and [`png`] write these, and [`html`] writes a page that zooms. Slices that
//! are narrower than a pixel are summed by column, so that a picture of millions of events is as large as one of
//! twenty.

pub mod html;
pub mod png;
pub mod scene;
pub mod svg;
