"""Tables, lists, reports and the screen: text and JSON from what records say."""
