//! Figures are well-formed, and the same each time.

use super::*;

fn reads() -> Plot {
    Plot {
        title: "Reads & <channels>".to_owned(),
        x: Axis::log2("threads"),
        y: Axis::linear("reads").unit("1/s"),
        lines: vec![
            Line::new(
                "best",
                vec![(1.0, 11_186.0), (8.0, 69_354.0), (32.0, 69_422.0)],
            ),
            Line::new(
                "worst",
                vec![(1.0, 11_186.0), (8.0, f64::NAN), (32.0, 13_315.0)],
            )
            .dashed(),
        ],
    }
}

/// Every tag that is opened is closed in turn, and no text holds a bare special character.
pub(crate) fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(begin) = rest.find('<') {
        assert!(!rest[..begin].contains('>'), "a bare > in {rest:.80}");
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} not closed");
    for (at, _) in svg.match_indices('&') {
        let entity = ["&amp;", "&lt;", "&gt;", "&quot;"];
        assert!(entity.iter().any(|known| svg[at..].starts_with(known)));
    }
}

#[test]
fn lines_have_a_marker_a_point_and_a_name() {
    let svg = page(&[reads()]);
    assert_well_formed(&svg);
    // Three points and one in the legend; the second line lacks a point and has triangles.
    assert_eq!(svg.matches("<circle").count(), 4);
    assert_eq!(svg.matches("<polygon").count(), 3);
    for words in [
        "Reads &amp; &lt;channels&gt;",
        "reads (1/s)",
        "\nbest\n",
        "\nworst\n",
        "\n32\n",
        "\n60,000\n",
    ] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn a_named_axis_makes_bars() {
    let names = ["fifo", "greedy"].map(str::to_owned).to_vec();
    let plot = Plot {
        x: Axis::named("reclaim", names),
        lines: vec![
            Line::new("here", vec![(0.0, 3.0), (1.0, 2.0)]),
            Line::new("paper", vec![(0.0, 3.5)]).dashed(),
        ],
        ..reads()
    };
    let svg = page(&[plot]);
    assert_well_formed(&svg);
    // The page, three bars, two squares in the legend.
    assert_eq!(svg.matches("<rect").count(), 6);
    assert!(svg.contains("\ngreedy\n"));
}

#[test]
fn a_page_holds_all_and_an_empty_plot_is_one_too() {
    let empty = Plot {
        lines: Vec::new(),
        ..reads()
    };
    let both = page(&[reads(), empty.clone()]);
    assert_well_formed(&both);
    assert!(both.contains("height=\"840\""));
    assert_well_formed(&page(&[empty]));
    assert_well_formed(&page(&[]));
    assert_eq!(page(&[reads()]), page(&[reads()]));
}

#[test]
fn a_table_has_a_row_for_each_line() {
    let text = "Reads & <channels>; reads (1/s)\n\
                threads      1      8     32\n   best  11186  69354  69422\n  worst  11186         13315\n";
    assert_eq!(reads().table(), text);
}
