//! `multi_get_with_budget`: each key is answered as `get` answers it, until the values before it reach the budget.

use paranoid_memtable::{Error, Lookup, MemTable};

use crate::support::rng::{Rng, seed_or};

/// Puts of many lengths, deletes, merges, and keys that are not there.
fn table(rng: &mut Rng) -> MemTable {
    let table = MemTable::default();
    for n in 0..100u64 {
        let key = (n / 2).to_be_bytes();
        let value = rng.bytes((n % 13) as usize);
        match rng.below(5) {
            0 => table.delete(n, &key),
            1 => table.merge(n, &key, &value),
            2 => continue,
            _ => table.put(n, &key, &value),
        }
        .unwrap();
    }
    table
}

/// What a result says, as text that can be compared.
fn shown(lookup: &Lookup<'_>) -> String {
    match lookup {
        Lookup::Value(value) => format!("value {:?}", &**value),
        Lookup::Merge(operands) => format!("{} operands", operands.clone().count()),
        other => format!("{other:?}"),
    }
}

#[test]
fn keys_beyond_a_budget_are_refused_by_name() {
    let mut rng = Rng::new(seed_or(0xb1d6e7));
    for round in 0..60 {
        let table = table(&mut rng);
        // More than one group, some keys twice.
        let keys: Vec<[u8; 8]> = (0..rng.below(100)).map(|_| rng.below(60).to_be_bytes()).collect();
        let budget = *rng.pick(&[0, 1, 7, 40, 200, u64::MAX]);
        let mut results = vec![Err(Error::Frozen)];
        table.multi_get_with_budget(&keys, u64::MAX, budget, &mut results);
        assert_eq!(results.len(), keys.len());
        let mut used = 0;
        for (key, result) in keys.iter().zip(&results) {
            let alone = table.get(key, u64::MAX).unwrap();
            match result {
                Err(Error::BudgetUsedUp { budget: named }) => {
                    assert!(used >= budget && *named == budget, "round {round}: {used} of {budget}");
                }
                Ok(lookup) => {
                    assert!(used < budget, "round {round}: {used} of {budget}");
                    assert_eq!(shown(lookup), shown(&alone), "round {round}: {key:?}");
                }
                Err(error) => panic!("round {round}: {error}"),
            }
            if let (Ok(_), Lookup::Value(value)) = (result, &alone) {
                used += value.len() as u64;
            }
        }
    }
}
