"""What a session leaves behind: the ledger of failures and git commits on its branch."""
