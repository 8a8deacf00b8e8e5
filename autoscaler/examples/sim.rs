use std::io::Read;
use stokehold_autoscaler::Name;
use stokehold_autoscaler::Policy;
use stokehold_autoscaler::simulate::{self, Rules, offers::Kind, own::Own, trace::{Job, Priority}};
fn read(path: &str) -> Vec<Job> {
    let mut t = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut t).unwrap();
    t.lines().skip(1).map(|l| { let f: Vec<&str> = l.split(',').collect();
        Job { arrival_s: f[0].parse().unwrap(), endpoint: Name::from(f[1]), service_s: f[2].parse().unwrap(), vram_gb: f[3].parse().unwrap(), priority: if f[4]=="interactive" {Priority::Interactive} else {Priority::Batch} } }).collect()
}
fn main() {
    let d = "/work/shared/data/traces/";
    let kinds: Vec<Kind> = std::fs::read_to_string("/work/shared/data/offers_reference.csv").unwrap().lines().skip(1).map(|l| { let f: Vec<&str> = l.split(',').collect(); let n=|i:usize| f[i].parse::<f64>().unwrap();
        Kind { name: f[0].into(), vram_gb: n(1), speed: n(2), od_usd_h: n(3), spot_usd_h: n(4), spot_preempt_per_h: n(5), boot_lo_s: n(6), boot_hi_s: n(7), max_count: n(8) as u32 } }).collect();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut policy = serde_json::to_value(Policy::default()).unwrap();
    let mut only = String::new(); let mut seed = 1; let mut log = false;
    for a in &args { let (k, v) = a.split_once('=').unwrap();
        if k == "t" { only = v.into() } else if k == "seed" { seed = v.parse().unwrap() } else if k == "log" { log = true }
        else { assert!(policy.get(k).is_some(), "{k}"); policy[k] = if k == "kinds" { serde_json::json!(v.split('+').filter(|x| !x.is_empty()).collect::<Vec<_>>()) } else { serde_json::from_str(v).unwrap() } } }
    let policy: Policy = serde_json::from_value(policy).unwrap();
    let _ = log;
    let mut product = 1.0; let mut count = 0;
    for (name, file, fold, skip, share, bound) in [("img","img_gentd26_a",0.0,0.0,None,47.0),("fold","img_gentd26_a",86400.0,0.0,None,40.0),("conv","llm_azure23_conv",0.0,600.0,None,2.8),("vlm","vlm_servegen_day",0.0,0.0,None,18.0),("task","task_openb_a",0.0,0.0,Some(24.0),520.0)] {
        if !only.is_empty() && !only.split('+').any(|o| o == name) { continue }
        let mut jobs = read(&format!("{d}{file}.csv.gz"));
        if fold > 0.0 { for j in &mut jobs { j.arrival_s %= fold } jobs.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s)); }
        let rules = Rules { seed, share_gb: share, skip_s: skip, ..Rules::default() };
        let cache = format!("/tmp/bound-{name}"); let _ = bound; let bound: f64 = std::fs::read_to_string(&cache).ok().and_then(|t| t.parse().ok()).unwrap_or_else(|| { let t = std::time::Instant::now(); let b = simulate::bound::lower_bound_usd(&jobs, &kinds, share, true); eprintln!("bound {name} {b:.3} {:.1}s", t.elapsed().as_secs_f64()); std::fs::write(&cache, b.to_string()).unwrap(); b });
        let mut own = Own::new(policy.clone());
        let t = std::time::Instant::now();
        let (o, samples) = simulate::run(&jobs, &kinds, &rules, &mut own, bound);
        if std::env::var_os("TL").is_some() { let k = (samples.len()/60).max(1); for x in samples.iter().step_by(k) { println!("{:8.0} demand {:5.2} ready {} busy {} boot {} stop {} wait {} {} spent {:.2}", x.at_s, x.demand_cards, x.ready, x.busy, x.booting, x.stopped, x.waiting_interactive, x.waiting_batch, x.spent_usd) } }
        product *= o.ratio; count += 1;
        println!("{name:5} {:8.2}$ ratio {:.2} int {:.2}% bat {:.2}% p95 {:.0} util {:.2} boots {} cold {} disk {} res {} late_usd {:.4} load {:.1} [{:.1}s]", o.cost_usd, o.ratio, o.attainment.interactive*100.0, o.attainment.batch*100.0, o.wait_s.interactive.p95, o.utilisation, o.boots, o.cold_loads, o.disk_loads, o.resumes, own.observer().learned().late_usd, own.observer().learned().swap_s, t.elapsed().as_secs_f64());
    }
    println!("geo {:.3}", f64::powf(product, 1.0 / f64::from(count)));
}
