//! What locks nothing, and what loses an answer, is named by the compiler. Each trap stands beside what
//! is right: but for that they are one text, so that no other error can pass for the trap.

macro_rules! traps {
    ($($name:ident: $trap:literal, $right:literal;)*) => { $(
        #[doc = traps!(@ "compile_fail", $trap)]
        #[doc = traps!(@ "no_run", $right)]
        mod $name {}
    )* };
    (@ $how:literal, $code:literal) => { concat!("```", $how, "
        #![deny(unused_must_use)]
        use std::time::Duration;
        use leasehold::{Client, Error, Lease, LockOptions, Mode, Released, Settings, blocking};
        async fn trap(
            client: Client, lease: Lease, threads: blocking::Client, held: blocking::Lease,
        ) -> Result<(), Error> {
            const FIVE: Duration = Duration::from_secs(5);
            ", $code, "
            Ok(())
        }\n```\n")
    };
}

traps! {
    lock: r#"client.lock_of("k", Mode::EXCLUSIVE)?;"#,
        r#"let lease = client.lock_of("k", Mode::EXCLUSIVE)?.lock().await?;"#;
    rwlock: r#"client.rwlock("k")?;"#, r#"let lease = client.rwlock("k")?.read().await?;"#;
    semaphore: r#"client.semaphore("k", 3)?;"#,
        r#"let lease = client.semaphore("k", 3)?.acquire().await?;"#;
    multi: r#"client.multi(["a", "b"])?;"#, r#"let lease = client.multi(["a", "b"])?.lock().await?;"#;
    election: r#"client.election("k")?;"#,
        r#"let leads = client.election("k")?.campaign("here").await?;"#;
    setting: r#"client.mutex("k")?.with_ttl(FIVE);"#,
        r#"let lease = client.mutex("k")?.with_ttl(FIVE).lock().await?;"#;
    not_awaited: r#"client.mutex("k")?.lock();"#, r#"let lease = client.mutex("k")?.lock().await?;"#;
    dropped_at_once: r#"client.mutex("k")?.lock().await?;"#,
        r#"let lease = client.mutex("k")?.lock().await?;"#;
    work_not_run: "lease.run(async {});", "lease.run(async {}).await?;";
    loss_of_run: "lease.run(async {}).await;", "lease.run(async {}).await?;";
    loss_of_with_lock: r#"client.mutex("k")?.with_lock(async |_| ()).await;"#,
        r#"client.mutex("k")?.with_lock(async |_| ()).await?;"#;
    released: "lease.release().await?;", "assert_eq!(lease.release().await?, Released::Held);";
    release_error: "lease.release().await;", "if let Err(error) = lease.release().await {}";
    shut_down: "client.shutdown(FIVE).await;", "let left = client.shutdown(FIVE).await;";
    signal: "lease.loss_signal();", "let signal = lease.loss_signal();";
    options: "LockOptions::new().within(FIVE);",
        r#"let lease = client.mutex("k")?.lock_opts(LockOptions::new().within(FIVE)).await?;"#;
    settings: "Settings::default().with_ttl(FIVE);",
        "let builder = Client::builder().settings(Settings::default().with_ttl(FIVE));";
    builder: r#"Client::builder().store("memory:");"#,
        r#"let client = Client::builder().store("memory:").connect().await?;"#;
    thread_lock: r#"threads.mutex("k")?;"#, r#"let lease = threads.mutex("k")?.lock()?;"#;
    thread_released: "held.release()?;", "assert_eq!(held.release()?, Released::Held);";
}
