"""What tests share: nodes, peers and swarms to test with, and what attacks them."""
