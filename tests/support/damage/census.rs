//! Counts of answers: by call, and, where a call asks for one key, by how near that key is to the
//! damage. `Corruption` is one of two answers; a wrong one ends the trial.
//!
//! ```text
//!   get own      the damaged entry's key        get beside   keys up to two probes away
//!   get other    every other key; all keys, if the damage belongs to no entry
//! ```
//! A walk is one answer: `Corruption` if any of its steps was. Data of one trial; one thread.

/// A column of the census.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    GetOwn,
    GetBeside,
    GetOther,
    MultiGet,
    Scan,
    Seek,
    Parked,
    Tombstones,
    PutOwn,
    PutBeside,
    PutOther,
    Batch,
    RangeDelete,
    Freeze,
    Flush,
}

/// What a call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Given,
    Corruption,
}

/// How near a key is to the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Near {
    Own,
    Beside,
    Other,
}

impl Call {
    pub const ALL: [Call; 15] = [
        Call::GetOwn,
        Call::GetBeside,
        Call::GetOther,
        Call::MultiGet,
        Call::Scan,
        Call::Seek,
        Call::Parked,
        Call::Tombstones,
        Call::PutOwn,
        Call::PutBeside,
        Call::PutOther,
        Call::Batch,
        Call::RangeDelete,
        Call::Freeze,
        Call::Flush,
    ];

    pub fn get(near: Near) -> Call {
        match near {
            Near::Own => Call::GetOwn,
            Near::Beside => Call::GetBeside,
            Near::Other => Call::GetOther,
        }
    }

    pub fn put(near: Near) -> Call {
        match near {
            Near::Own => Call::PutOwn,
            Near::Beside => Call::PutBeside,
            Near::Other => Call::PutOther,
        }
    }

    /// The heading of the column.
    pub fn name(self) -> &'static str {
        match self {
            Call::GetOwn => "get own",
            Call::GetBeside => "get beside",
            Call::GetOther => "get other",
            Call::MultiGet => "multi_get",
            Call::Scan => "scan",
            Call::Seek => "seek",
            Call::Parked => "parked",
            Call::Tombstones => "tombstones",
            Call::PutOwn => "put own",
            Call::PutBeside => "put beside",
            Call::PutOther => "put other",
            Call::Batch => "batch",
            Call::RangeDelete => "del_range",
            Call::Freeze => "freeze",
            Call::Flush => "flush",
        }
    }
}

/// Number of answers, and how many of them were `Corruption`, by call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census([[u64; 2]; Call::ALL.len()]);

impl Census {
    pub fn count(&mut self, call: Call, answer: Answer) {
        let [answers, corruption] = &mut self.0[call as usize];
        *answers += 1;
        *corruption += u64::from(answer == Answer::Corruption);
    }

    pub fn add(&mut self, other: &Census) {
        for (sum, more) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *sum += more;
        }
    }

    /// The share of a call's answers that are `Corruption`. `None`: the call was not made.
    pub fn share(&self, call: Call) -> Option<f64> {
        let [answers, corruption] = self.0[call as usize];
        (answers > 0).then(|| corruption as f64 / answers as f64)
    }

    /// Number of answers of all calls.
    pub fn answers(&self) -> u64 {
        self.0.iter().map(|[answers, _]| answers).sum()
    }

    /// Number of answers that were `Corruption`.
    pub fn corruption(&self) -> u64 {
        self.0.iter().map(|[_, corruption]| corruption).sum()
    }

    /// The counts as text; `-` if there are none.
    pub fn encode(&self) -> String {
        if self.answers() == 0 {
            return "-".into();
        }
        let numbers: Vec<String> = self.0.iter().flatten().map(u64::to_string).collect();
        numbers.join(",")
    }

    pub fn decode(text: &str) -> Option<Census> {
        let mut census = Census::default();
        if text == "-" {
            return Some(census);
        }
        let mut numbers = text.split(',');
        for slot in census.0.iter_mut().flatten() {
            *slot = numbers.next()?.parse().ok()?;
        }
        Some(census)
    }
}
