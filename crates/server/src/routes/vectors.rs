//! Vectors as clients ask for them.

use crate::Failure;

/// The first `dimensions` values of a vector.
///
/// # Errors
/// More dimensions than the vector has, or none.
pub(super) fn shortened(mut values: Vec<f32>, dimensions: Option<usize>) -> Result<Vec<f32>, Failure> {
    match dimensions {
        None => Ok(values),
        Some(count) if (1..=values.len()).contains(&count) => {
            values.truncate(count);
            Ok(values)
        }
        Some(count) => {
            let message = format!("`dimensions`: expected 1 to {}, found {count}", values.len());
            Err(Failure::invalid("dimensions", message))
        }
    }
}

/// The vector at a length of 1. A vector of zeros stays.
pub(super) fn unit(mut values: Vec<f32>) -> Vec<f32> {
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        values.iter_mut().for_each(|value| *value /= length);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_shortened_before_they_get_the_length_one() {
        let values = shortened(vec![3.0, 4.0, 12.0], Some(2)).unwrap();
        assert_eq!(unit(values), [0.6, 0.8]);
        assert_eq!(unit(vec![0.0, 0.0]), [0.0, 0.0]);
        let failure = shortened(vec![1.0], Some(2)).unwrap_err();
        assert_eq!(failure.message, "`dimensions`: expected 1 to 1, found 2");
    }
}
