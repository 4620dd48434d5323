//! Demonyms and short country names: `American` and `U.S.` refer to the United States.

const COUNTRIES: [(&str, &str); 66] = [
    ("afghan", "afghanistan"),
    ("albanian", "albania"),
    ("algerian", "algeria"),
    ("american", "united states"),
    ("argentine", "argentina"),
    ("australian", "australia"),
    ("austrian", "austria"),
    ("belgian", "belgium"),
    ("brazilian", "brazil"),
    ("british", "united kingdom"),
    ("bulgarian", "bulgaria"),
    ("canadian", "canada"),
    ("chilean", "chile"),
    ("chinese", "china"),
    ("colombian", "colombia"),
    ("croatian", "croatia"),
    ("cuban", "cuba"),
    ("czech", "czech republic"),
    ("danish", "denmark"),
    ("dutch", "netherlands"),
    ("egyptian", "egypt"),
    ("english", "england"),
    ("estonian", "estonia"),
    ("ethiopian", "ethiopia"),
    ("finnish", "finland"),
    ("french", "france"),
    ("german", "germany"),
    ("ghanaian", "ghana"),
    ("greek", "greece"),
    ("hungarian", "hungary"),
    ("icelandic", "iceland"),
    ("indian", "india"),
    ("indonesian", "indonesia"),
    ("iranian", "iran"),
    ("iraqi", "iraq"),
    ("irish", "ireland"),
    ("israeli", "israel"),
    ("italian", "italy"),
    ("jamaican", "jamaica"),
    ("japanese", "japan"),
    ("kenyan", "kenya"),
    ("korean", "korea"),
    ("lebanese", "lebanon"),
    ("malaysian", "malaysia"),
    ("mexican", "mexico"),
    ("nigerian", "nigeria"),
    ("norwegian", "norway"),
    ("pakistani", "pakistan"),
    ("peruvian", "peru"),
    ("polish", "poland"),
    ("portuguese", "portugal"),
    ("romanian", "romania"),
    ("russian", "russia"),
    ("scottish", "scotland"),
    ("serbian", "serbia"),
    ("spanish", "spain"),
    ("swedish", "sweden"),
    ("swiss", "switzerland"),
    ("turkish", "turkey"),
    ("u.k.", "united kingdom"),
    ("u.s.", "united states"),
    ("uk", "united kingdom"),
    ("ukrainian", "ukraine"),
    ("us", "united states"),
    ("usa", "united states"),
    ("welsh", "wales"),
];

/// The country of a word, both in lower case.
pub(crate) fn country(word: &str) -> Option<&'static str> {
    COUNTRIES.binary_search_by(|(known, _)| (*known).cmp(word)).ok().map(|at| COUNTRIES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_people_means_its_country() {
        assert!(COUNTRIES.is_sorted());
        assert_eq!(country("american"), Some("united states"));
        assert_eq!(country("welsh"), Some("wales"));
        assert_eq!(country("rome"), None);
    }
}
