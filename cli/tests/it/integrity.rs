//! Signatures that projects demand, and the configuration file.

use crate::remote::{Person, words};

const KEY: &str = "D56C4FCA57A46444";

#[test]
fn policies_of_signatures_are_added_changed_and_deleted_by_number() {
    let admin = Person::admin();
    admin.says(&words("proj create signed"));
    let policies = "proj source-integrity git policies";
    let (error, code) = admin.fails(&words(&format!("{policies} list signed")));
    assert_eq!(code, 20);
    assert!(
        error.contains("no source integrity git policies defined for project \"signed\""),
        "{error}"
    );
    let fingerprint = format!("{}{KEY}", "0".repeat(24));
    let add = format!(
        "{policies} add signed --repo-url https://git.example.com/a/* --gpg-mode head --gpg-key {fingerprint}"
    );
    let output = admin.run(&words(&add));
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(
        warning.contains(&format!("not in repo-server keyring: {KEY}")),
        "{warning}"
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        table,
        format!(
            "ID  GPG-MODE  GPG-KEYS          REPO-URLS\n0   head      {KEY}  https://git.example.com/a/*\n"
        )
    );
    let update =
        format!("{policies} update signed 0 --gpg-mode strict --add-repo-url https://git.example.com/b/* -y");
    let table = admin.says(&words(&update));
    assert!(table.contains("0   strict"), "{table}");
    let integrity = &admin.json(&words("proj get signed"))["spec"]["sourceIntegrity"]["git"]["policies"];
    assert_eq!(integrity[0]["gpg"]["mode"], "strict");
    assert_eq!(integrity[0]["repos"][1]["url"], "https://git.example.com/b/*");
    let (error, _) = admin.fails(&words(&format!("{policies} delete signed 0 1 -y")));
    assert!(error.contains("the POLICY_ID 1 is out of range (0-0)"), "{error}");
    admin.says(&words(&format!("{policies} delete signed 0 -y")));
    let spec = &admin.json(&words("proj get signed"))["spec"];
    assert_eq!(spec.get("sourceIntegrity"), None);
    admin.says(&words("proj delete signed -y"));
}

#[test]
fn prompts_of_argo_cds_program_are_switched_in_the_file_that_both_read() {
    let person = Person::new();
    let (error, code) = person.fails(&["configure", "--prompts-enabled"]);
    assert_eq!(code, 20);
    assert!(error.contains("No local configuration found"), "{error}");
    let admin = Person::admin();
    let said = "Successfully updated the following configuration settings:\nprompts-enabled: true\n";
    assert_eq!(admin.says(&["configure", "--prompts-enabled"]), said);
    assert_eq!(admin.says(&["configure"]), said, "it stays as it is");
    let file = std::fs::read_to_string(admin.path("config")).unwrap();
    assert!(file.contains("prompts-enabled: true"), "{file}");
    admin.says(&["configure", "--prompts-enabled=false"]);
    admin.says(&words("account get-user-info"));
}
