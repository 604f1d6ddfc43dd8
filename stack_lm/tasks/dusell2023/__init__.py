"""The languages of DuSell and Chiang (2023): some that are not context-free, and some with many kinds of symbols."""
