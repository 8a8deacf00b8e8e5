use super::*;

fn ms(text: &str) -> u64 {
    crate::time_format::parse(text).unwrap()
}

/// The next ticks after `after`, as this zone's clocks show them, with their offset.
fn ticks(expression: &str, zone: &str, after: &str, n: usize) -> Vec<String> {
    let cron = Cron::parse(expression, zone).ok().unwrap();
    let mut at = ms(after);
    let shown = std::iter::from_fn(|| {
        at = cron.next_after(at)?;
        let moment = DateTime::<Utc>::from_timestamp_millis(at as i64).unwrap().with_timezone(&cron.zone);
        Some(moment.format("%Y-%m-%dT%H:%M:%S%z").to_string())
    });
    shown.take(n).collect()
}

fn refused(expression: &str, zone: &str) -> String {
    match Cron::parse(expression, zone) {
        Ok(_) => format!("{expression} in {zone} was not refused"),
        Err(Wrong::Expression(text)) => format!("cron: {text}"),
        Err(Wrong::TimeZone(text)) => format!("time_zone: {text}"),
    }
}

#[test]
fn five_fields_tick_at_whole_minutes_and_six_at_seconds() {
    assert_eq!(
        ticks("*/5 * * * *", "UTC", "2026-11-21T05:50:00Z", 2),
        ["2026-11-21T05:55:00+0000", "2026-11-21T06:00:00+0000"]
    );
    assert_eq!(
        ticks("*/20 * * * * *", "UTC", "2026-11-21T05:50:00.999Z", 3),
        ["2026-11-21T05:50:20+0000", "2026-11-21T05:50:40+0000", "2026-11-21T05:51:00+0000"]
    );
    assert_eq!(ticks("* * * * * *", "UTC", "2026-11-21T05:50:00.999Z", 1), ["2026-11-21T05:50:01+0000"]);
    assert_eq!(ticks("30 9 * * MON-FRI", "Asia/Kolkata", "2026-11-20T12:00:00Z", 1), ["2026-11-23T09:30:00+0530"]);
    assert_eq!(ticks("0 0 L * *", "UTC", "2026-02-01T00:00:00Z", 1), ["2026-02-28T00:00:00+0000"]);
    assert_eq!(ticks("0 0 * * fri#2", "UTC", "2026-11-01T00:00:00Z", 1), ["2026-11-13T00:00:00+0000"]);
    for last_friday in ["0 0 * * 5L", "0 0 * * FRI#L"] {
        assert_eq!(ticks(last_friday, "UTC", "2026-11-01T00:00:00Z", 1), ["2026-11-27T00:00:00+0000"], "{last_friday}");
    }
    assert_eq!(ticks("0 0 * * MON#2", "UTC", "2026-11-01T00:00:00Z", 1), ["2026-11-09T00:00:00+0000"]);
    assert_eq!(ticks("0 0 15W * *", "UTC", "2026-11-01T00:00:00Z", 1), ["2026-11-16T00:00:00+0000"]);
    assert_eq!(
        ticks("0 0 13 * 5", "UTC", "2026-11-01T00:00:00Z", 3),
        ["2026-11-06T00:00:00+0000", "2026-11-13T00:00:00+0000", "2026-11-20T00:00:00+0000"],
        "both days given: either will do, as in Vixie cron"
    );
}

#[test]
fn a_leap_day_is_waited_for_and_a_day_that_never_comes_is_refused() {
    assert_eq!(
        ticks("0 12 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2),
        ["2028-02-29T12:00:00+0000", "2032-02-29T12:00:00+0000"]
    );
    for never in ["0 0 30 2 *", "0 0 31 4,6 *"] {
        assert_eq!(refused(never, "UTC"), "cron: never occurs: no month has such a day");
    }
}

#[test]
fn a_time_of_day_that_clocks_leave_out_ticks_right_after_it() {
    // Berlin: 2027-03-28, 02:00 becomes 03:00.
    assert_eq!(
        ticks("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", 2),
        ["2027-03-28T03:00:00+0200", "2027-03-29T02:30:00+0200"]
    );
    assert_eq!(
        ticks("15,45 2,14 * * *", "Europe/Berlin", "2027-03-27T20:00:00Z", 3),
        ["2027-03-28T03:00:00+0200", "2027-03-28T14:15:00+0200", "2027-03-28T14:45:00+0200"],
        "both fall on the same moment: one tick"
    );
    assert_eq!(
        ticks("0 3 * * *", "Europe/Berlin", "2027-03-27T20:00:00Z", 2),
        ["2027-03-28T03:00:00+0200", "2027-03-29T03:00:00+0200"]
    );
    // New York: 2027-03-14, 02:00 becomes 03:00.
    assert_eq!(
        ticks("30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", 2),
        ["2027-03-14T03:00:00-0400", "2027-03-15T02:30:00-0400"]
    );
    // Lord Howe sets its clocks forward by half an hour, and Samoa once skipped a day.
    assert_eq!(ticks("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 1), ["2026-10-04T02:30:00+1100"]);
    assert_eq!(
        ticks("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3),
        ["2011-12-29T12:00:00-1000", "2011-12-31T00:00:00+1400", "2011-12-31T12:00:00+1400"]
    );
}

#[test]
fn a_time_of_day_that_comes_twice_ticks_once() {
    // Berlin: 2026-10-25, 03:00 becomes 02:00 again.
    assert_eq!(
        ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T02:30:00+0200", "2026-10-26T02:30:00+0100"]
    );
    assert_eq!(
        ticks("0,30 2,14 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 3),
        ["2026-10-25T02:00:00+0200", "2026-10-25T02:30:00+0200", "2026-10-25T14:00:00+0100"]
    );
    // Computed from between the two, and when the time occurs for the second time.
    assert_eq!(ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", 1), ["2026-10-26T02:30:00+0100"]);
    assert_eq!(ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15:00Z", 1), ["2026-10-26T02:30:00+0100"]);
    // New York: 2026-11-01, 02:00 becomes 01:00 again.
    assert_eq!(
        ticks("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2),
        ["2026-11-01T01:30:00-0400", "2026-11-02T01:30:00-0500"]
    );
}

#[test]
fn an_interval_follows_the_time_that_passes() {
    assert_eq!(
        ticks("*/30 * * * *", "Europe/Berlin", "2027-03-28T00:15:00Z", 3),
        ["2027-03-28T01:30:00+0100", "2027-03-28T03:00:00+0200", "2027-03-28T03:30:00+0200"]
    );
    assert_eq!(
        ticks("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 3),
        ["2026-10-25T02:00:00+0200", "2026-10-25T02:00:00+0100", "2026-10-25T03:00:00+0100"]
    );
    assert_eq!(
        ticks("*/30 * * * *", "America/New_York", "2026-11-01T05:15:00Z", 4),
        [
            "2026-11-01T01:30:00-0400",
            "2026-11-01T01:00:00-0500",
            "2026-11-01T01:30:00-0500",
            "2026-11-01T02:00:00-0500"
        ]
    );
    assert_eq!(
        ticks("*/30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", 1),
        ["2027-03-29T02:00:00+0200"],
        "every half hour of an hour that is left out"
    );
}

#[test]
fn a_refusal_says_what_to_change() {
    assert_eq!(
        refused("* * *", "UTC"),
        "cron: must have 5 fields (minute, hour, day of month, month, day of week) or 6 (second first), but has 3"
    );
    for (expression, field, range) in [
        ("60 * * * *", "the minute is \"60\"", "0 to 59"),
        ("61 0 * * * *", "the second is \"61\"", "0 to 59"),
        ("0 24 * * *", "the hour is \"24\"", "0 to 23"),
        ("0 0 0 * *", "the day of month is \"0\"", "1 to 31"),
        ("0 0 32 * *", "the day of month is \"32\"", "1 to 31"),
        ("0 0 * 13 *", "the month is \"13\"", "1 to 12"),
        ("0 0 * MON *", "the month is \"MON\"", "1 to 12"),
        ("0 0 * * 8", "the day of week is \"8\"", "0 to 7"),
        ("0 0 * * JAN", "the day of week is \"JAN\"", "0 to 7"),
        ("a * * * *", "the minute is \"a\"", "0 to 59"),
        ("*/0 * * * *", "the minute is \"*/0\"", "0 to 59"),
        ("5-1 * * * *", "the minute is \"5-1\"", "0 to 59"),
        ("1,,2 * * * *", "the minute is \"1,,2\"", "0 to 59"),
        ("- * * * *", "the minute is \"-\"", "0 to 59"),
        ("@daily * * * *", "the minute is \"@daily\"", "0 to 59"),
        ("ä * * * *", "the minute is \"ä\"", "0 to 59"),
    ] {
        let message = refused(expression, "UTC");
        assert!(message.contains(field) && message.contains(range), "{expression}: {message}");
    }
    for wrong in ["", "@daily", "* * * * * * *", &"* ".repeat(500)] {
        assert!(refused(wrong, "UTC").contains("must have 5 fields"), "{wrong}");
    }
    assert_eq!(
        refused("* * * * *", "Berlin"),
        "time_zone: must be an IANA time zone name; did you mean Europe/Berlin?"
    );
    assert_eq!(
        refused("* * * * *", "america/new york"),
        "time_zone: must be an IANA time zone name; did you mean America/New_York?"
    );
    assert!(refused("* * * * *", "Mars/Olympus").contains("e.g. Europe/Berlin"));
}
