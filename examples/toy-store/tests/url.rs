//! The toy is opened by its URL, as the registry and the command do it.

use leasehold_store::access::Access;
use leasehold_store::scheme::Scheme;
use toy_store::Toys;

#[test]
fn its_url_is_described_before_it_is_opened() {
    for url in ["toy:", "toy:?colour=red"] {
        let described = Toys.describe(url).unwrap();
        assert_eq!(described.url, url);
        assert!(!described.has_password && !described.has_servers, "{url}");
        assert!(Toys.warning(url).is_none());
    }
    let refused = Toys.describe("toy:?color=red").unwrap_err();
    assert_eq!(
        refused.message,
        "the URL has an unknown parameter \"color\""
    );
    assert_eq!(refused.hint.unwrap(), "known parameters: colour");
}

#[tokio::test]
async fn it_is_opened_and_examined() {
    let opened = Toys.open("toy:", &Access::default()).await.unwrap();
    assert_eq!(opened.store.capabilities().name, "toy");
    let report = Toys.examine("toy:", &Access::default()).await.unwrap();
    assert_eq!(report.store, "toy:");
}
