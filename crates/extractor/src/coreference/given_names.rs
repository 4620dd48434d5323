//! Genders of given names in English texts. Names that are common for both are omitted.

use crate::Gender;

const FEMININE: &str = "abigail ada adele agnes agatha aisha alexandra alice alicia alison allison alma amanda amber amelia amy \
    ana anastasia andrea angela angelina anita ann anna anne annette annie antonia april ariana astrid audrey barbara beatrice \
    becky belinda bernadette bertha beth betty beverly bianca bonnie brenda bridget brittany camilla carla carmen carol carole \
    carolina caroline carolyn carrie catherine cathy cecilia celia charlene charlotte cheryl chloe christina christine cindy \
    claire clara claudia connie constance cynthia daisy daniela danielle daphne dawn deborah debra deepika denise diana diane \
    dolores donna dora doris dorothy edith eileen elaine eleanor elena elisabeth eliza elizabeth ella ellen elsa elsie emilia \
    emily emma erica erin esther ethel eva eve evelyn fatima fiona florence frances francesca freya frida gabriela gail \
    genevieve georgia geraldine gertrude gina giulia gloria grace greta gwen hannah harriet hazel heather heidi helen helena \
    hilary hilda holly ida imelda ingrid irene iris irina isabel isabella ivana jacqueline jane janet janice jasmine jean \
    jeanne jenna jennifer jenny jessica jill joan joanna jodie josephine joyce juanita judith judy julia juliana julie juliet \
    june karen karin kate katharine katherine kathleen kathryn kathy katie kayla keira kelly kimberly kristen kristin kristina \
    lakshmi laura lauren lena leona leticia lillian lily linda lisa lois lola loretta lorraine louisa louise lucia lucille lucy \
    lydia lynn mabel madeleine madonna magdalena maggie malala marcia margaret margarita maria marian marianne marie marilyn \
    marina marion marjorie marlene marta martha mary matilda maud maureen maya megan melanie melinda melissa mercedes meryl mia \
    michelle mildred millicent minnie miranda miriam molly mona monica nadia nancy naomi natalia natalie natasha nellie nicole \
    nina nora norma octavia olga olivia ophelia pamela patricia patty paula pauline pearl peggy penelope petra phyllis \
    priscilla priya queen rachel ramona rebecca regina renata renee rhonda rita roberta rosa rosalind rose rosemary roxanne \
    ruby ruth sabrina sally samantha sandra sara sarah selena serena sharon sheila shirley silvia simone sofia sonia sophia \
    sophie stella stephanie sue susan susanna suzanne svetlana sybil sylvia tamara tanya tara tatiana teresa theresa tiffany \
    tina tracy ursula valentina valerie vanessa vera veronica victoria viola violet virginia vivian wanda wendy whitney \
    wilhelmina winifred yoko yolanda yvonne zoe";

const MASCULINE: &str = "aaron abdul abdullah abraham adam adolf adrian ahmad ahmed akira al alan albert alberto aldo alec alejandro \
    alexander alexandre alexei alfred alfredo ali allan allen alvin amos anders andre andreas andrei andres andrew andy angelo \
    anil anthony anton antonio archibald armand arnold arthur arturo ashok august augustus barack barry bartholomew ben \
    benjamin benedict bernard bernie bert bill billy bjorn bob bobby boris brad bradley brandon brendan brent brett brian bruce \
    bruno bryan burt byron calvin carl carlo carlos cecil cedric cesar charles charlie chester chris christian christopher \
    chuck clarence clark claude clayton clifford clint clive colin connor conrad craig curtis cyril dale damian dan daniel \
    danny darren darryl dave david dean dennis derek desmond diego dieter dmitri dominic don donald doug douglas duncan dustin \
    dwayne dwight earl ed eddie edgar edmund eduardo edward edwin eli elias elijah elliot elmer elvis emanuel emil emilio \
    enrique eric erik ernest ernesto ernst erwin ethan eugene evan fabio felix ferdinand fernando floyd francesco francis \
    francisco frank franklin franz fred frederic frederick fritz gareth gary gavin gene geoffrey george georges georg gerald \
    gerard gerhard gilbert giovanni giuseppe glen glenn gordon graham grant greg gregory guido guillermo gunther gus gustav \
    guy hans harold harry harvey hassan hector heinrich henri henry herbert herman hermann hideo hiroshi homer horace howard \
    hubert hugh hugo humphrey hussein ian ibrahim igor isaac ismail ivan ivar jack jacob jacques jaime james jan jared jason \
    javier jay jeff jeffrey jeremy jerome jerry jesus jim jimmy joachim joao joe joel johan johann john johnny jon jonas \
    jonathan jorge jose josef joseph joshua juan juergen julian julio julius justin kamal karl keith ken kenneth kenny kevin \
    khalid kim king klaus kofi kurt kyle lance larry lars laurence lawrence lee leo leon leonard leonardo leopold leroy lester \
    lewis liam lloyd lorenzo lou louis luca lucas luigi luis luke luther magnus mahmoud malcolm manuel marc marcel marco marcus \
    mario mark martin marvin matt matteo matthew maurice max maximilian mehmet mel michael michel miguel mike mikhail milton \
    mitchell mohamed mohammad mohammed morgan moses muhammad murray mustafa nathan nathaniel neil nelson nicholas nick nicolas \
    nigel nikita nikolai noah noel norman oleg oliver omar orlando oscar oswald otto owen pablo paolo patrick paul pavel pedro \
    percy pete peter philip philippe phil pierre rafael rahul raj rajesh ralph ramon randall randy raul ray raymond reginald \
    rene rex ricardo richard rick ricky rob robert roberto robin rodney roger roland roman ron ronald rory ross roy ruben \
    rudolf rudolph rupert russell ryan salvador sam samuel sanjay santiago scott sean sebastian sergei sergio seth seymour \
    shane shawn sheldon sidney siegfried silvio simon stanley stefan stephen steve steven stewart stuart sven ted terence \
    terry theodor theodore thomas tim timothy toby todd tom tommy tony travis trevor tristan tyler umberto vaclav valentin \
    vernon victor viktor vijay vincent vincenzo vito vladimir wallace walter warren wayne werner wilbur wilhelm willem will \
    william willie winston wolfgang woody xavier yusuf zachary";

const MASCULINE_TITLES: [&str; 8] = ["duke", "king", "lord", "mr", "mr.", "prince", "sir", "sultan"];
const FEMININE_TITLES: [&str; 9] =
    ["dame", "duchess", "lady", "miss", "mrs", "mrs.", "ms", "ms.", "princess"];

/// The gender of a person's first word, a title or a given name in lower case.
pub(super) fn gender_of(word: &str) -> Option<Gender> {
    let is_in = |names: &str| names.split_whitespace().any(|name| name == word);
    if MASCULINE_TITLES.contains(&word) || is_in(MASCULINE) {
        return Some(Gender::Masculine);
    }
    (FEMININE_TITLES.contains(&word) || is_in(FEMININE)).then_some(Gender::Feminine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_given_names_have_one_gender() {
        assert_eq!(gender_of("mrs."), Some(Gender::Feminine));
        assert_eq!(gender_of("john"), Some(Gender::Masculine));
        assert_eq!(gender_of("acme"), None);
        let mut both = FEMININE
            .split_whitespace()
            .filter(|name| MASCULINE.split_whitespace().any(|other| other == *name));
        assert_eq!(both.next(), None);
    }
}
