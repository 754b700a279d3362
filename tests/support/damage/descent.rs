//! What a walk through keys in descending order may leave out.
//!
//! ```text
//!   table order   b@7  b@4  [c@9  c@2]  d@8  d@5         a gap, from b@4 to d@8
//!   shown         d@8  d@5  error  b@7  b@4              met from d: c is next
//!                 d@8  d@5  error  c@9  b@7  b@4         c@2 alone damaged: reported before c@9, left out after it
//!                 d@8  error  d@5  b@7  b@4              met while the first version of d was looked for
//! ```
//! A gap is one stretch of the table, and its error comes when the walk reaches its far end. So what is left out is
//! what comes next, or ends right before the key that was shown last, of the entry that is shown next, or of more of
//! the same gap. All together, it is no more stretches of the table than errors were reported.

use std::collections::BTreeSet;

use super::model::{Model, Row};

/// The rows that a walk through descending keys may still leave out. Numbers are indexes into the model's rows.
#[derive(Debug, Clone, Default)]
pub struct Descent {
    /// Rows right before which a gap that was reported may lie.
    ends: BTreeSet<usize>,
    hidden: BTreeSet<usize>,
    /// Rows that were shown before the damage: a gap may include them.
    shown: BTreeSet<usize>,
}

impl Descent {
    /// A walk that has shown these rows before the damage.
    pub fn after(model: &Model, shown: &[&Row]) -> Descent {
        let shown = shown.iter().filter_map(|row| model.row(&row.key, row.sequence)).collect();
        Descent { shown, ..Descent::default() }
    }

    /// An error was reported. `last` is the row that was shown or left out last, or none was; then `next` is the
    /// first of the walk.
    pub fn reported(&mut self, model: &Model, last: Option<&Row>, next: Option<&Row>) {
        let end = match (last, next) {
            (Some(last), _) => model.rows.partition_point(|row| row.key < last.key),
            (None, Some(next)) => end_of(model, next),
            (None, None) => return,
        };
        self.ends.insert(end);
    }

    /// The first entry that is shown after an error.
    pub fn shown_after(&mut self, model: &Model, row: &Row) {
        self.ends.extend(model.row(&row.key, row.sequence));
    }

    /// Whether this row and all older versions of its key may be in a gap that was reported.
    pub fn may_end_with(&self, model: &Model, row: &Row) -> bool {
        self.ends.contains(&end_of(model, row))
    }

    /// Notes that the walk left a row out.
    pub fn left_out(&mut self, model: &Model, row: &Row) {
        let place = model.row(&row.key, row.sequence);
        self.ends.extend(place);
        self.hidden.extend(place);
    }

    /// Stretches of the table that were left out.
    pub fn stretches(&self) -> usize {
        let ends = |place: &&usize| {
            let next = (**place + 1..).find(|next| !self.shown.contains(next));
            next.is_none_or(|next| !self.hidden.contains(&next))
        };
        self.hidden.iter().filter(ends).count()
    }
}

/// The index after the last version of a key.
fn end_of(model: &Model, row: &Row) -> usize {
    model.rows.partition_point(|other| other.key <= row.key)
}
