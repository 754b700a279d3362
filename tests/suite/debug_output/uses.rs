//! Uses of a value that its type need not allow. A method answers whether it did anything.

/// A value of any type.
pub(super) struct Used<'v, T>(pub(super) &'v T);

/// A method of the first trait is found before that of the second, which needs one more reference, unless the type of the
/// value lacks the bound.
macro_rules! optional {
    ($method:ident, $with:ident: $bound:ident, $without:ident, $value:ident => $used:expr) => {
        pub(super) trait $with {
            fn $method(&self) -> bool;
        }
        impl<T: $bound> $with for Used<'_, T> {
            fn $method(&self) -> bool {
                let $value = self.0;
                $used;
                true
            }
        }
        pub(super) trait $without {
            fn $method(&self) -> bool;
        }
        impl<T> $without for &Used<'_, T> {
            fn $method(&self) -> bool {
                false
            }
        }
    };
}

optional!(copy, Copies: Clone, CopiesNot, value => drop(value.clone()));
optional!(equal, Equals: PartialEq, EqualsNot, value => assert!(value.eq(value)));
optional!(compare, Compares: PartialOrd, ComparesNot, value => assert!(value.le(value)));

#[test]
fn only_what_a_type_lacks_is_left_out() {
    let all = &Used(&7);
    assert_eq!([all.copy(), all.equal(), all.compare()], [true; 3]);
    struct None;
    let none = &Used(&None);
    assert_eq!([none.copy(), none.equal(), none.compare()], [false; 3]);
    #[derive(Clone)]
    struct Cloned;
    let cloned = &Used(&Cloned);
    assert_eq!([cloned.copy(), cloned.equal(), cloned.compare()], [true, false, false]);
}
